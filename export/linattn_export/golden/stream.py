"""A sequence to run piece by piece: what a decoder does, with the outputs of the whole."""

from typing import Any

import torch
from torch import Tensor

from linattn_export.inputs.drawing import draw
from linattn_export.subjects.subject import OUTPUT, Subject
from linattn_runtime_checks.contract.golden_pack import Case, StoredError
from linattn_runtime_checks.contract.verdict import ZERO, error_of

LENGTH = 67
"""A chunk of the recurrence, and three tokens of the next."""
_BATCH = 2
_NAME = "stream"


def stream_of(subject: Subject, tensors: dict[str, Any]) -> Case | None:
    """Add the sequence to ``tensors``; None where the graph has no state.

    Its outputs are those of the float64 module, a token at a time from states of zeros; what
    rounding costs is measured on the live module doing the same.
    """
    streaming = subject.model.streaming
    longest = subject.model.max_length(subject.module)
    if not subject.states or streaming is None or (longest is not None and longest < LENGTH):
        return None
    batch = subject.variants[0].batch.clamp(_BATCH)
    inputs = draw(
        subject.model.inputs(subject.module, False),
        {"batch": batch, "sequence": LENGTH},
        family="normal",
        dtype=subject.dtype,
        seed=subject.seed,
        task=subject.task,
    )
    wide = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    expected = _stepped(streaming.step(subject.wide), wide, subject, torch.float64)
    eager = _stepped(streaming.step(subject.module), inputs, subject, torch.float32)
    found = error_of(eager.numpy(), expected.numpy())
    moved = ZERO
    for module in subject.perturbed:
        layer = getattr(module, "layer")  # noqa: B009  (mypy knows of no such attribute)
        other = _stepped(streaming.step(layer), wide, subject, torch.float64)
        moved = moved.largest(error_of(other.numpy(), expected.numpy()))
    for name, x in inputs.items():
        tensors[f"{_NAME}/input/{name}"] = x.numpy()
    tensors[f"{_NAME}/output/{OUTPUT}"] = expected.numpy()
    return Case(
        name=_NAME,
        family="normal",
        batch=batch,
        sequence=LENGTH,
        stored=_NAME,
        eager_error=StoredError(row=found.row, whole=found.whole),
        sensitivity=StoredError(row=moved.row, whole=moved.whole),
    )


def _stepped(
    step: torch.nn.Module, inputs: dict[str, Tensor], subject: Subject, dtype: torch.dtype
) -> Tensor:
    """The outputs ``[batch, LENGTH, ..]`` of one token after the other."""
    batch = next(iter(inputs.values())).size(0)
    states = [torch.zeros(batch, *state.shape, dtype=dtype) for state in subject.states]
    outputs = []
    with torch.no_grad():
        for t in range(LENGTH):
            output, *states = step(*(x[:, t : t + 1] for x in inputs.values()), *states)
            outputs.append(output)
    return torch.cat(outputs, dim=1)
