"""What padded positions hold must change nothing of the real tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.checks.inputs import PADDED, usual
from linattn_runtime_checks.checks.outputs import apart, differing, promised
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import Case, ReferenceIndex
from linattn_runtime_checks.contract.manifest import Artifact, TensorSpec
from linattn_runtime_checks.contract.token_axes import inside, spread
from linattn_runtime_checks.runtimes.base import Runtime, Tensors


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a padded position is filled with: a number, or a token between lowest and highest."""

    title: str
    number: float
    share: float


# The large numbers are finite: 0 times NaN is NaN, in PyTorch too, and a mask that multiplies is
# right.
_FINITE = (
    Garbage("ones, or the lowest token,", 1.0, 0.0),
    Garbage("-1e4, or the highest token,", -1e4, 1.0),
    Garbage("1e4, or a token between,", 1e4, 0.5),
)


def leak_of(context: Context, garbage: Sequence[Garbage]) -> tuple[bool, str | None]:
    """Whether there is a case with padding, and what garbage in it changes of real tokens.

    Raises:
        RunFailed: an input that the artifact must take does not run.
    """
    session, artifact, reference = context.session, context.artifact, context.reference
    mask_name = next((spec.name for spec in artifact.inputs if spec.is_mask), None)
    padded = [case for case in usual(artifact, reference) if case.family in PADDED]
    if not padded or mask_name not in reference.inputs(padded[0]):
        return False, None
    for case in {case.family: case for case in padded}.values():  # one of each kind
        inputs = reference.inputs(case)
        mask = inputs[mask_name].astype(bool)
        expected = promised(session, artifact, inputs)
        for what in garbage:
            changed = _with(what, artifact, inputs, mask)
            leak = _leak(promised(session, artifact, changed), expected, artifact, mask, case)
            if leak is not None:
                return True, f"{case.name} with {what.title} in the padded positions: {leak}"
    return True, None


def _leak(
    got: Tensors, expected: Tensors, artifact: Artifact, mask: NDArray[np.bool_], case: Case
) -> str | None:
    """What differs at real tokens; None if nothing does.

    Where padded tokens may hold anything, not a byte may differ. Elsewhere a module may take them
    into a sum and out again, and leave a rounding behind.
    """
    for spec in artifact.outputs:
        after, before = got[spec.name], expected[spec.name]
        if after.shape != before.shape:
            return f"{differing(after, before)} of {spec.name} differ"
        kept = _real(mask, spec, after.shape)
        if after[kept].tobytes() == before[kept].tobytes():
            continue
        found = apart(np.where(kept, after, before), before, case, spec.name)
        if artifact.nan_padding or found is not None:
            return f"{differing(after[kept], before[kept])} of real tokens differ"
    return None


def _real(mask: NDArray[np.bool_], spec: TensorSpec, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """What belongs to real tokens, or to sequences that have one."""
    if has_tokens(spec) or "batch" not in spec.axes:
        return spread(mask, spec, shape)
    rows = [-1 if place == spec.axes.index("batch") else 1 for place in range(len(shape))]
    return np.broadcast_to(mask.any(axis=1).reshape(rows), shape)


def has_tokens(spec: TensorSpec) -> bool:
    """Whether each of its elements belongs to a token of a sequence."""
    return {"batch", "sequence"} <= set(spec.axes)


def _with(what: Garbage, artifact: Artifact, inputs: Tensors, mask: NDArray[np.bool_]) -> Tensors:
    """The inputs with other things where the mask is False.

    Whole numbers look up rows of a table, so they stay among those that the case holds.
    """
    changed = dict(inputs)
    for spec in artifact.inputs:
        tensor = inputs.get(spec.name)
        if tensor is None:
            continue  # the comparison of the signatures says so
        if spec.is_mask or not has_tokens(spec):
            continue
        token = tensor.min() + what.share * (tensor.max() - tensor.min())
        floats = tensor.dtype.kind == "f"
        other = np.asarray(what.number if floats else token).astype(tensor.dtype)
        padded = ~spread(mask, spec, tensor.shape)
        changed[spec.name] = np.where(padded, inside(other, spec) if floats else other, tensor)
    return changed


def has_mask(artifact: Artifact, runtime: Runtime, index: ReferenceIndex | None) -> bool:
    """For checks of artifacts with a key padding mask."""
    return any(spec.is_mask for spec in artifact.inputs)


def _run(context: Context) -> list[Problem] | None:
    there, leak = leak_of(context, _FINITE)
    if leak is not None:
        return [Problem(code=Code.PADDING_LEAKS, message=leak)]
    return [] if there else None


PADDING = Check(
    name="padding",
    title="what padded positions hold changes nothing of the real ones",
    codes=(Code.PADDING_LEAKS,),
    applies=has_mask,
    run=_run,
    faults=("mask-ignored", "mask-off-by-one", "mask-on-value-only"),
)
