"""Checks that trust no reference: what must hold of the outputs whatever the numbers are.

    deterministic   the same input gives the same bytes, with another input in between
    alone           a sequence alone gives what it gives in a batch, with and without padding
    padding         what padded positions hold changes no byte of the real ones
    nan_padding     not even where they hold NaN, if that is promised
    equivariant     reordered tokens give reordered outputs, where the method implies it
    causal          another token changes no byte of the outputs before it, where it must not
    finite          finite inputs give finite outputs

A wrong reference, or an eager module that is wrong in the same way, cannot hide a fault from them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.cases import cases_for
from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.manifest import Artifact, TensorSpec
from linattn_runtime_checks.outputs import apart, differing, promised
from linattn_runtime_checks.padding import PADDED, check_padding
from linattn_runtime_checks.reference import Case, Reference
from linattn_runtime_checks.report.model import CaseResult, CheckResult
from linattn_runtime_checks.runtimes.base import Session
from linattn_runtime_checks.token_axes import (
    another_from,
    reordered,
    rows_of,
    until,
)

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
    found += check_padding(session, artifact, reference, usable)
    plain = [case for case in usable if case.family == "normal"]
    checks = [
        _alone(session, artifact, reference, usable),
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
    if all(case.code is Code.PASS for case in bad):
        message += (
            "; the module itself does so, in float64 too, so it is no fault of the file: mend the "
            "module, or describe what it takes (range, positive; empty_rows = false of a mask)"
        )
    return CheckResult(name="finite", code=Code.NONFINITE_OUTPUT, message=message)


def _deterministic(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> CheckResult:
    case = _closest(cases)
    between = max(cases, key=lambda other: (other.name != case.name, -other.batch * other.sequence))
    first = promised(session, artifact, reference.inputs(case))
    session.run(reference.inputs(between))
    second = promised(session, artifact, reference.inputs(case))
    for name, output in first.items():
        if output.tobytes() != second[name].tobytes():
            message = f"{case.name} run twice: {differing(output, second[name])} of {name} differ"
            return CheckResult(name="deterministic", code=Code.NOT_DETERMINISTIC, message=message)
    return CheckResult(name="deterministic", code=Code.PASS)


def _alone(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> CheckResult | None:
    low = artifact.axis("batch").declared[0]
    several = [case for case in cases if case.batch > low and artifact.accepts(low, case.sequence)]
    if not several:
        return None
    specs = {spec.name: spec for spec in (*artifact.inputs, *artifact.outputs)}
    for case in _usual_shortest_and_padded(several):
        inputs = reference.inputs(case)
        together = promised(session, artifact, inputs)
        # Not only the ends: a pack may repeat its sequences to fill a batch.
        for start in sorted({0, min(1, case.batch - low), case.batch - low}):
            part = {name: _part(x, specs.get(name), start, low) for name, x in inputs.items()}
            for name, output in promised(session, artifact, part).items():
                expected = _part(together[name], specs[name], start, low)
                if specs[name].axes[-1:] == ["batch"] and output.shape == expected.shape:
                    # Its rows run over the batch: what is small in one is measured by all of it.
                    expected, output = together[name], _put(together[name], output, start)
                problem = apart(output, expected, case, name)
                if problem is not None:
                    message = f"{case.name}, sequence {start}: alone and in the batch {problem}"
                    return CheckResult(name="alone", code=Code.BATCH_DEPENDENT, message=message)
    return CheckResult(name="alone", code=Code.PASS)


def _usual_shortest_and_padded(cases: list[Case]) -> list[Case]:
    """The cases on which a mask or a size that is special alone would show."""
    plain = [case for case in cases if case.family == "normal"]
    shortest = min(plain, key=lambda case: (case.sequence, case.batch), default=None)
    chosen = [_closest(plain)] if plain else []
    chosen += [shortest] if shortest is not None else []
    chosen += {case.family: case for case in cases if case.family in PADDED}.values()
    return list({case.name: case for case in chosen}.values())


def _part(tensor: NDArray[Any], spec: TensorSpec | None, start: int, count: int) -> NDArray[Any]:
    if spec is None:  # the comparison of the signatures says so
        return tensor[start : start + count]
    return rows_of(tensor, spec, start, count)


def _put(whole: NDArray[Any], part: NDArray[Any], start: int) -> NDArray[Any]:
    """``whole`` with ``part`` of it, from ``start`` on wherever it is shorter, in its place."""
    found = whole.copy()
    shapes = zip(whole.shape, part.shape, strict=True)
    found[tuple(slice(None) if w == p else slice(start, start + p) for w, p in shapes)] = part
    return found


def _equivariant(
    session: Session, artifact: Artifact, reference: Reference, cases: list[Case]
) -> CheckResult | None:
    several = [case for case in cases if case.sequence > 1]
    if not several or not all("sequence" in spec.axes for spec in artifact.outputs):
        return None
    case = _closest(several)
    inputs = reference.inputs(case)
    order = np.random.default_rng(case.sequence).permutation(case.sequence)
    expected = promised(session, artifact, inputs)
    specs = {spec.name: spec for spec in artifact.inputs}
    if not set(inputs) <= set(specs):
        return None  # the comparison of the signatures says so
    changed = {name: reordered(x, specs[name], order) for name, x in inputs.items()}
    for spec in artifact.outputs:
        before = expected[spec.name]
        if before.shape[spec.axes.index("sequence")] != case.sequence:
            problem: str | None = f"have shape {list(before.shape)}"
        else:
            got = promised(session, artifact, changed)[spec.name]
            problem = apart(got, reordered(before, spec, order), case, spec.name)
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
    expected = promised(session, artifact, inputs)
    # The last, the second, and one in between: at the ends of a block is where masks go wrong.
    for place in sorted({1, case.sequence // 2, case.sequence - 1} - {0}):
        changed = dict(inputs)
        for spec in artifact.inputs:
            if spec.name in inputs and not spec.is_mask:
                changed[spec.name] = another_from(inputs[spec.name], spec, place)
        got = promised(session, artifact, changed)
        for spec in along:
            before, after = until(expected[spec.name], spec, place), got[spec.name]
            after = until(after, spec, place)
            if before.tobytes() != after.tobytes():
                message = (
                    f"{case.name} with other tokens from place {place} on: "
                    f"{differing(before, after)} of {spec.name} before it differ"
                )
                return CheckResult(name="causal", code=Code.FUTURE_LEAKS, message=message)
    return CheckResult(name="causal", code=Code.PASS)


def _closest(cases: Sequence[Case]) -> Case:
    """The case nearest to a usual size: neither trivial nor long."""
    return min(cases, key=lambda case: (abs(case.batch * case.sequence - _USUAL_TOKENS), case.name))
