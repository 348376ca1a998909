"""What padded positions hold must change nothing of the real tokens."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.manifest import Artifact, TensorSpec
from linattn_runtime_checks.outputs import apart, differing, promised
from linattn_runtime_checks.reference import Case, Reference
from linattn_runtime_checks.report.model import CheckResult
from linattn_runtime_checks.runtimes.base import Session, Tensors
from linattn_runtime_checks.token_axes import inside, spread

PADDED = ("right-padding", "left-padding", "inside-padding", "one-token", "one-empty")
"""Families of masks that have real and padded tokens."""
_NAN = "NaN"


def check_padding(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> list[CheckResult]:
    """What numbers in padded positions do, and what NaN does there; nothing without a mask."""
    mask_name = next((spec.name for spec in artifact.inputs if spec.is_mask), None)
    padded = [case for case in cases if case.family in PADDED]
    if not padded or mask_name not in reference.inputs(padded[0]):
        return []
    leaks = nan_leaks = None
    for case in {case.family: case for case in padded}.values():  # one of each kind
        inputs = reference.inputs(case)
        mask = inputs[mask_name].astype(bool)
        expected = promised(session, artifact, inputs)
        for what, changed in _garbage(artifact, inputs, mask):
            leak = _leak(promised(session, artifact, changed), expected, artifact, mask, case)
            if leak is None:
                continue
            message = f"{case.name} with {what} in the padded positions: {leak}"
            if what != _NAN:
                leaks = leaks or message
            else:
                nan_leaks = nan_leaks or message
    found = [_check("padding", Code.PADDING_LEAKS, leaks)]
    if any(spec.dtype.startswith("float") and _has_tokens(spec) for spec in artifact.inputs):
        code = Code.PADDING_LEAKS if artifact.nan_padding else Code.NAN_PADDING
        found.append(_check("nan_padding", code, nan_leaks))
    return found


def _check(name: str, code: Code, message: str | None) -> CheckResult:
    """Passed where there is nothing to say."""
    return CheckResult(
        name=name, code=Code.PASS if message is None else code, message=message or ""
    )


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
    if _has_tokens(spec) or "batch" not in spec.axes:
        return spread(mask, spec, shape)
    rows = [-1 if place == spec.axes.index("batch") else 1 for place in range(len(shape))]
    return np.broadcast_to(mask.any(axis=1).reshape(rows), shape)


def _has_tokens(spec: TensorSpec) -> bool:
    return {"batch", "sequence"} <= set(spec.axes)


def _garbage(
    artifact: Artifact, inputs: Tensors, mask: NDArray[np.bool_]
) -> Iterator[tuple[str, Tensors]]:
    """The inputs with other things where the mask is False.

    Whole numbers look up rows of a table, so they stay among those that the case holds. The large
    numbers are finite: 0 times NaN is NaN, in PyTorch too, and a mask that multiplies is right.
    """
    for what, number, share in (
        ("ones, or the lowest token,", 1.0, 0.0),
        ("-1e4, or the highest token,", -1e4, 1.0),
        ("1e4, or a token between,", 1e4, 0.5),
        (_NAN, np.nan, 0.0),
    ):
        changed = dict(inputs)
        for spec in artifact.inputs:
            tensor = inputs.get(spec.name)
            if tensor is None:
                continue  # the comparison of the signatures says so
            if spec.is_mask or not _has_tokens(spec):
                continue
            token = tensor.min() + share * (tensor.max() - tensor.min())
            floats = tensor.dtype.kind == "f"
            other = np.asarray(number if floats else token).astype(tensor.dtype)
            padded = ~spread(mask, spec, tensor.shape)
            changed[spec.name] = np.where(padded, inside(other, spec) if floats else other, tensor)
        yield what, changed
