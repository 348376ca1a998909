"""The latency of a layer in ONNX Runtime divided by that of the same module in eager PyTorch.

python -m benchmarks.speed.eager [--quick] [--output FOLDER] [--budget SECONDS]
"""

from pathlib import Path

import torch

from benchmarks.speed import page, script
from benchmarks.speed.layers import (
    LINEAR,
    Array,
    Sizes,
    call_of,
    export,
    hidden_states,
    make_layer,
    open_session,
)
from benchmarks.speed.ratios import Goal, median_ms, ratio
from benchmarks.speed.timing import Call, interleave
from linattn_export.subjects.subject import Subject

LENGTHS = (128, 1024, 4096, 8192)
GOAL, _FROM = Goal(value=0.7), 1024


def eager_call(subject: Subject, x: Array) -> Call:
    """One run of the live module, without gradients."""
    module, inputs = subject.eager(), {"hidden_states": torch.from_numpy(x)}

    def call() -> object:
        return module(inputs)

    return call


def measure(
    folder: Path, sizes: Sizes, lengths: tuple[int, ...], budget_s: float
) -> script.Measured:
    """The table."""
    subjects = {method: make_layer(method, sizes) for method in LINEAR}
    sessions = {m: open_session(export(subject, folder)) for m, subject in subjects.items()}
    rows = []
    for length in lengths:
        x = hidden_states(length, sizes)
        calls = {m: call_of(session, {"hidden_states": x}) for m, session in sessions.items()}
        calls |= {f"eager {m}": eager_call(subject, x) for m, subject in subjects.items()}
        times = interleave(calls, budget_s)
        for method in LINEAR:
            eager = times[f"eager {method}"]
            rows.append(
                page.ratio_row(
                    {"method": method, "N": length},
                    {"ORT ms": median_ms(times[method]), "eager ms": median_ms(eager)},
                    ratio(times[method], eager),
                    GOAL if length >= _FROM else None,
                )
            )
    return script.Measured(rows=rows)


def main() -> None:
    """Measure and write."""
    script.run(
        __doc__,
        measure,
        name="eager",
        title="ONNX Runtime against eager PyTorch",
        text="The dynamic artifact against the module that it was made from.",
        lengths=LENGTHS,
        budget_s=25,
    )


if __name__ == "__main__":
    main()
