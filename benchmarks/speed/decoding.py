"""One token of a decoder: its latency far into a sequence, and against eager PyTorch.

    python -m benchmarks.speed.decoding [--quick] [--output FOLDER] [--budget SECONDS]

The step artifact of one layer runs in plain ONNX Runtime with IO binding: the states stay where
they are, in two sets of buffers that change roles. The first ratio is its latency at position
100,000 divided by that at position 1; the second its latency divided by that of the live module.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from torch import Tensor

from benchmarks.speed import page, script
from benchmarks.speed.layers import Sizes, export, hidden_states, open_session
from benchmarks.speed.ratios import Goal, median_ms, ratio
from benchmarks.speed.timing import interleave
from linattn import NAMES, record_of
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_export.subjects.subject import Subject

METHODS = tuple(name for name in NAMES if record_of(name).capabilities.recurrent)
_FLAT, _FASTER = Goal(value=1.05), Goal(value=0.3)
_PIECE = 1000


def bound(session: Any, subject: Subject, x: np.ndarray[Any, Any], states: list[Tensor]) -> Any:
    """A call that runs one token and hands its states to the next, without copies."""
    names = [state.name for state in subject.states]
    buffers = [
        [ort.OrtValue.ortvalue_from_numpy(state.numpy().copy()) for state in states]
        for _ in range(2)
    ]
    token = ort.OrtValue.ortvalue_from_numpy(x)
    output = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(x))
    bindings = []
    for now, after in ((0, 1), (1, 0)):
        binding = session.io_binding()
        binding.bind_ortvalue_input(subject.inputs[0].name, token)
        binding.bind_ortvalue_output("output", output)
        for place, name in enumerate(names):
            binding.bind_ortvalue_input(f"past_{name}", buffers[now][place])
            binding.bind_ortvalue_output(f"present_{name}", buffers[after][place])
        bindings.append(binding)
    turn = [0]

    def call() -> object:
        session.run_with_iobinding(bindings[turn[0]])
        turn[0] ^= 1
        return output

    return call


def states_after(subject: Subject, tokens: int) -> list[Tensor]:
    """The states of the live module after so many tokens, fed piece by piece."""
    layer: Any = subject.module
    states = [torch.zeros(1, *state.shape) for state in subject.states]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for start in range(0, tokens, _PIECE):
            piece = min(_PIECE, tokens - start)
            x = torch.randn(1, piece, layer.d_model, generator=generator)
            _, states = layer.advance(x, None, states, False)
    return states


def live(subject: Subject, x: np.ndarray[Any, Any], states: list[Tensor]) -> Callable[[], object]:
    """The same in eager PyTorch."""
    entry, token, held = subject.entry(), torch.from_numpy(x), [states]

    def call() -> object:
        with torch.no_grad():
            output, *held[0] = entry(token, *held[0])
        return output

    return call


def measure(
    folder: Path, sizes: Sizes, positions: tuple[int, ...], budget_s: float
) -> script.Measured:
    """Both tables; ``positions`` are the first and the far one."""
    rows, against = [], []
    for method in METHODS:
        request = BuildRequest(
            methods=(method,),
            entries=("step",),
            batch="1",
            d_model=sizes.d_model,
            heads=sizes.heads,
        )
        subject = make_subjects(request)[0]
        session = open_session(export(subject, folder)).session
        x = hidden_states(1, sizes)
        near, far = positions
        calls = {
            f"at {place}": bound(session, subject, x, states_after(subject, place))
            for place in positions
        }
        calls["eager"] = live(subject, x, states_after(subject, near))
        times = interleave(calls, budget_s)
        here, there, eager = (times[name] for name in (f"at {near}", f"at {far}", "eager"))
        rows.append(
            page.ratio_row(
                {"method": method},
                {f"ms at {far}": median_ms(there), f"ms at {near}": median_ms(here)},
                ratio(there, here),
                _FLAT,
            )
        )
        against.append(
            page.ratio_row(
                {"method": method},
                {"ONNX Runtime ms": median_ms(here), "eager ms": median_ms(eager)},
                ratio(here, eager),
                _FASTER,
            )
        )
    return script.Measured(rows=rows, more={"One token against eager PyTorch": against})


def main() -> None:
    """Measure and write."""
    script.run(
        __doc__,
        measure,
        name="decoding",
        title="One token of a decoder",
        text=(
            "The step artifact of one layer with IO binding, from the state after 1 token and "
            "after 100,000, and the live module."
        ),
        lengths=(1, 100_000),
        budget_s=3.0,
        quick_lengths=(1, 200),
    )


if __name__ == "__main__":
    main()
