"""States to go on from: what a run before left, and zeros, by turns."""

import torch
from torch import Tensor

from linattn_export.inputs.drawing import draw
from linattn_export.subjects.subject import Subject

_BEFORE = 9
"""Tokens that made the states: more than any convolution looks back."""


def states_for(subject: Subject, sizes: dict[str, int]) -> dict[str, Tensor]:
    """States for inputs of ``sizes``, by the name of the input, float32.

    Every second sequence starts afresh: where one alone does depends on the length.
    """
    if not subject.states:
        return {}
    batch = sizes["batch"]
    streaming = subject.model.streaming
    assert streaming is not None
    entry = streaming.prefill(subject.wide, False, 0)
    inputs = draw(
        subject.model.inputs(subject.module, False),
        {"batch": batch, "sequence": _BEFORE},
        family="normal",
        dtype=subject.dtype,
        seed=subject.seed + sizes["sequence"],
        task=subject.task,
    )
    wide = [x.double() if x.is_floating_point() else x for x in inputs.values()]
    zeros = [torch.zeros(batch, *state.shape, dtype=torch.float64) for state in subject.states]
    with torch.no_grad():
        _, *states = entry(*wide, *zeros)
    fresh = (torch.arange(batch) + sizes["sequence"]) % 2 == 0
    found = {}
    for spec, state in zip(subject.states, states, strict=True):
        state[fresh] = 0
        found[f"past_{spec.name}"] = state.float().contiguous()
    return found
