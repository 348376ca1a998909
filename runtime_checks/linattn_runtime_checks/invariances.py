"""Checks that trust no reference: what must hold of the outputs whatever the numbers are.

    deterministic   the same input gives the same bytes, with another input in between
    alone           a sequence alone gives what it gives in a batch
    padding         what padded positions hold changes no byte of the real ones
    equivariant     reordered tokens give reordered outputs, where the method implies it
    causal          another token changes no byte of the outputs before it, where it must not
    finite          finite inputs give finite outputs

A wrong reference, or an eager module that is wrong in the same way, cannot hide a fault from them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.cases import cases_for
from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.manifest import Artifact, TensorSpec
from linattn_runtime_checks.reference import Case, Reference
from linattn_runtime_checks.report.model import CaseResult, CheckResult
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors
from linattn_runtime_checks.token_axes import (
    another_from,
    inside,
    reordered,
    rows_of,
    spread,
    until,
)
from linattn_runtime_checks.verdict import K, error_of

_BOTH_SIDES = 2.0
"""Two outputs, each up to K roundings from the truth, are up to 2 K from each other."""
_USUAL_TOKENS = 256


def check_invariances(
    session: Session, artifact: Artifact, reference: Reference, cases: Sequence[CaseResult]
) -> list[CheckResult]:
    """Every check that applies to ``artifact``.

    Args:
        session: opened in the mode that users run.
        artifact: its manifest entry.
        reference: its golden pack; only inputs and yardsticks are used.
        cases: what the comparisons found, for ``finite``.

    Raises:
        RunFailed: an input that the artifact must take does not run.
    """
    usable = [case for case in cases_for(artifact, reference) if not case.hostile]
    if not usable:
        return []
    found = [_finite(cases), _deterministic(session, artifact, reference, usable)]
    plain = [case for case in usable if case.family == "normal"]
    checks = [
        _alone(session, artifact, reference, plain),
        _padding(session, artifact, reference, usable),
        _equivariant(session, artifact, reference, plain) if artifact.equivariant else None,
        _causal(session, artifact, reference, plain) if artifact.causal else None,
    ]
    return found + [check for check in checks if check is not None]


def _finite(cases: Sequence[CaseResult]) -> CheckResult:
    bad = [case for case in cases if case.nonfinite]
    if not bad:
        return CheckResult(name="finite", code=Code.PASS)
    names = ", ".join(sorted({case.case for case in bad})[:4])
    message = f"finite inputs gave NaN or infinity in {len(bad)} case(s): {names}"
    return CheckResult(name="finite", code=Code.NONFINITE_OUTPUT, message=message)


def _deterministic(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> CheckResult:
    case = _closest(cases)
    between = max(cases, key=lambda other: (other.name != case.name, -other.batch * other.sequence))
    first = _run(session, artifact, reference.inputs(case))
    session.run(reference.inputs(between))
    second = _run(session, artifact, reference.inputs(case))
    for name, output in first.items():
        if output.tobytes() != second[name].tobytes():
            message = f"{case.name} run twice: {_differing(output, second[name])} of {name} differ"
            return CheckResult(name="deterministic", code=Code.NOT_DETERMINISTIC, message=message)
    return CheckResult(name="deterministic", code=Code.PASS)


def _alone(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> CheckResult | None:
    low = artifact.axis("batch").declared[0]
    several = [case for case in cases if case.batch > low and artifact.accepts(low, case.sequence)]
    if not several:
        return None
    case = _closest(several)
    inputs = reference.inputs(case)
    together = _run(session, artifact, inputs)
    specs = {spec.name: spec for spec in (*artifact.inputs, *artifact.outputs)}
    # Not only the ends: a pack may repeat its sequences to fill a batch.
    for start in sorted({0, min(1, case.batch - low), case.batch - low}):
        part = {name: _part(x, specs.get(name), start, low) for name, x in inputs.items()}
        for name, output in _run(session, artifact, part).items():
            expected = _part(together[name], specs[name], start, low)
            problem = _apart(output, expected, case, name)
            if problem is not None:
                message = f"{case.name}, sequence {start}: alone and in the batch {problem}"
                return CheckResult(name="alone", code=Code.BATCH_DEPENDENT, message=message)
    return CheckResult(name="alone", code=Code.PASS)


def _part(tensor: NDArray[Any], spec: TensorSpec | None, start: int, count: int) -> NDArray[Any]:
    if spec is None:  # the comparison of the signatures says so
        return tensor[start : start + count]
    return rows_of(tensor, spec, start, count)


def _padding(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> CheckResult | None:
    mask_name = next((spec.name for spec in artifact.inputs if spec.is_mask), None)
    padded = [case for case in cases if case.family in ("right-padding", "left-padding")]
    if not padded or mask_name not in reference.inputs(padded[0]):
        return None
    chosen = {case.family: case for case in padded}  # one of each side
    for case in chosen.values():
        inputs = reference.inputs(case)
        mask = inputs[mask_name].astype(bool)
        expected = _run(session, artifact, inputs)
        for what, changed in _garbage(artifact, inputs, mask):
            for spec in artifact.outputs:
                got = _run(session, artifact, changed)[spec.name]
                before = expected[spec.name]
                if got.shape == before.shape:
                    kept = spread(mask, spec, got.shape)
                    got, before = got[kept], before[kept]
                if got.tobytes() != before.tobytes():
                    message = (
                        f"{case.name} with {what} in the padded positions: "
                        f"{_differing(got, before)} of real tokens differ"
                    )
                    return CheckResult(name="padding", code=Code.PADDING_LEAKS, message=message)
    return CheckResult(name="padding", code=Code.PASS)


def _garbage(
    artifact: Artifact, inputs: Tensors, mask: NDArray[np.bool_]
) -> Iterator[tuple[str, Tensors]]:
    """The inputs with other things where the mask is False.

    Whole numbers look up rows of a table, so they stay among those that the case holds.
    """
    for what, number, share in (
        ("ones, or the lowest token,", 1.0, 0.0),
        ("large numbers, or the highest token,", -1e4, 1.0),
        ("NaN, or a token between,", np.nan, 0.5),
    ):
        changed = dict(inputs)
        for spec in artifact.inputs:
            tensor = inputs.get(spec.name)
            if tensor is None:
                continue  # the comparison of the signatures says so
            if spec.is_mask or not {"batch", "sequence"} <= set(spec.axes):
                continue
            token = tensor.min() + share * (tensor.max() - tensor.min())
            floats = tensor.dtype.kind == "f"
            other = np.asarray(number if floats else token).astype(tensor.dtype)
            padded = ~spread(mask, spec, tensor.shape)
            changed[spec.name] = np.where(padded, inside(other, spec) if floats else other, tensor)
        yield what, changed


def _equivariant(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> CheckResult | None:
    several = [case for case in cases if case.sequence > 1]
    if not several or not all("sequence" in spec.axes for spec in artifact.outputs):
        return None
    case = _closest(several)
    inputs = reference.inputs(case)
    order = np.random.default_rng(case.sequence).permutation(case.sequence)
    expected = _run(session, artifact, inputs)
    specs = {spec.name: spec for spec in artifact.inputs}
    if not set(inputs) <= set(specs):
        return None  # the comparison of the signatures says so
    changed = {name: reordered(x, specs[name], order) for name, x in inputs.items()}
    for spec in artifact.outputs:
        before = expected[spec.name]
        if before.shape[spec.axes.index("sequence")] != case.sequence:
            problem: str | None = f"have shape {list(before.shape)}"
        else:
            got = _run(session, artifact, changed)[spec.name]
            problem = _apart(got, reordered(before, spec, order), case, spec.name)
        if problem is not None:
            message = f"{case.name} with its tokens reordered: the outputs {problem}"
            return CheckResult(name="equivariant", code=Code.NOT_EQUIVARIANT, message=message)
    return CheckResult(name="equivariant", code=Code.PASS)


def _causal(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> CheckResult | None:
    several = [case for case in cases if case.sequence > 1]
    along = [spec for spec in artifact.outputs if "sequence" in spec.axes]
    if not several or not along:
        return None
    case = _closest(several)
    inputs = reference.inputs(case)
    expected = _run(session, artifact, inputs)
    # The last, the second, and one in between: at the ends of a block is where masks go wrong.
    for place in sorted({1, case.sequence // 2, case.sequence - 1} - {0}):
        changed = dict(inputs)
        for spec in artifact.inputs:
            if spec.name in inputs and not spec.is_mask:
                changed[spec.name] = another_from(inputs[spec.name], spec, place)
        got = _run(session, artifact, changed)
        for spec in along:
            before, after = until(expected[spec.name], spec, place), got[spec.name]
            after = until(after, spec, place)
            if before.tobytes() != after.tobytes():
                message = (
                    f"{case.name} with other tokens from place {place} on: "
                    f"{_differing(before, after)} of {spec.name} before it differ"
                )
                return CheckResult(name="causal", code=Code.FUTURE_LEAKS, message=message)
    return CheckResult(name="causal", code=Code.PASS)


def _apart(output: NDArray[Any], expected: NDArray[Any], case: Case, name: str) -> str | None:
    """How two outputs differ beyond rounding; None if they do not."""
    if output.shape != expected.shape:
        return f"have shapes {list(output.shape)} and {list(expected.shape)}"
    if (np.isfinite(output) != np.isfinite(expected)).any():
        return "have NaN or infinity on one side only"
    error, allowed = error_of(output, expected.astype(np.float64)), case.yardstick(name)
    limit = _BOTH_SIDES * K
    if error.row <= limit * allowed.row and error.whole <= limit * allowed.whole:
        return None
    return f"differ by {error.row:.2e} of a row, where rounding costs {allowed.row:.1e}"


def _closest(cases: Sequence[Case]) -> Case:
    """The case nearest to a usual size: neither trivial nor long."""
    return min(cases, key=lambda case: (abs(case.batch * case.sequence - _USUAL_TOKENS), case.name))


def _run(session: Session, artifact: Artifact, inputs: Tensors) -> Tensors:
    """The promised outputs, copied: a runtime may hand out the same buffer again.

    Raises:
        RunFailed: it does not run, or an output is missing.
    """
    outputs = session.run(inputs)
    missing = [spec.name for spec in artifact.outputs if spec.name not in outputs]
    if missing:
        raise RunFailed(f"no output is called {', '.join(missing)}")
    return {spec.name: outputs[spec.name].copy() for spec in artifact.outputs}


def _differing(one: NDArray[Any], other: NDArray[Any]) -> str:
    if one.shape != other.shape:
        return f"shapes {list(one.shape)} and {list(other.shape)}"
    return f"{int((one != other).sum())} element(s)"
