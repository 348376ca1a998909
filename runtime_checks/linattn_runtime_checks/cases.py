"""Runs the cases of a golden pack through one opened artifact."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.manifest import Artifact
from linattn_runtime_checks.reference import Case, Reference
from linattn_runtime_checks.report.model import CaseResult, Finding
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors
from linattn_runtime_checks.verdict import Comparison, compare

_OUTSIDE = "the module itself gives NaN or infinity on these inputs, in float64 too"


def cases_for(artifact: Artifact, reference: Reference) -> list[Case]:
    """The cases whose sizes the artifact declares."""
    return [c for c in reference.index.cases if artifact.accepts(c.batch, c.sequence)]


def run_cases(
    session: Session,
    artifact: Artifact,
    reference: Reference,
    mode: str,
    tell: Callable[[str], None],
) -> Iterator[CaseResult]:
    """Judge every case that the artifact must take; ``tell`` hears of each before it runs."""
    dtypes = {spec.name: spec.dtype for spec in artifact.outputs}
    for case in cases_for(artifact, reference):
        tell(case.name)
        common: dict[str, Any] = {
            "mode": mode,
            "case": case.name,
            "family": case.family,
            "batch": case.batch,
            "sequence": case.sequence,
            "rounding": case.rounding(),
        }
        try:
            inputs = reference.inputs(case)
            outputs = session.run(inputs)
        except RunFailed as error:
            yield CaseResult(**common, code=Code.RUN_FAILED, message=str(error))
            continue
        for name, expected in reference.outputs(case).items():
            if name not in outputs:
                message = f"no output is called {name}; there are {', '.join(outputs) or 'none'}"
                yield CaseResult(**common, code=Code.OUTPUT_MISSING, message=message)
                continue
            dtype = dtypes.get(name, artifact.dtype)
            got = reference.compared(case, name, outputs[name])
            result = compare(got, expected, dtype, case.yardstick(name))
            numbers = _numbers(result)
            if case.hostile and result.code is Code.INCONCLUSIVE:
                numbers["code"] = Code.PRECISION_LOST
            # Where eager itself is not finite, the artifact may be as it is.
            lost = bool(np.isfinite(case.yardstick(name).row)) and _lost(inputs, outputs[name])
            if lost and case.hostile and not artifact.finite and result.code is Code.PASS:
                numbers |= {"code": Code.OUTSIDE_DOMAIN, "message": _OUTSIDE, "multiple": None}
                lost = False
            yield CaseResult(**common, nonfinite=lost, **numbers)


def _lost(inputs: Tensors, output: NDArray[Any]) -> bool:
    """Whether NaN or infinity came out though none went in."""
    went_in = all(np.isfinite(x).all() for x in inputs.values() if x.dtype.kind == "f")
    return went_in and not np.isfinite(output).all()


def _numbers(result: Comparison) -> dict[str, Any]:
    names = ("code", "message", "multiple", "row_error", "whole_error", "max_abs", "worst_index")
    return {name: getattr(result, name) for name in names}


def check_refusal(session: Session, artifact: Artifact, reference: Reference) -> Finding | None:
    """A fixed artifact must refuse every other length; an output for one is a finding.

    So is a golden pack in which there is no other length to try.
    """
    low, high = artifact.axis("sequence").declared
    if low != high or not any("sequence" in spec.axes for spec in artifact.inputs):
        return None
    batch_low, batch_high = artifact.axis("batch").declared
    others = [
        case
        for case in reference.index.cases
        if case.sequence != low and batch_low <= case.batch <= batch_high
    ]
    if not others:
        return Finding.of(
            Code.REFUSAL_UNVERIFIED,
            f"{artifact.id} is fixed to sequence length {low}, and its golden pack holds no "
            "other length to see it refuse; build the folder again",
        )
    for other in sorted(others, key=lambda case: abs(case.sequence - low))[:2]:
        try:
            session.run(reference.inputs(other))
        except RunFailed:
            continue
        return Finding.of(
            Code.LENGTH_NOT_REFUSED,
            f"{artifact.id} is fixed to sequence length {low} but ran one of {other.sequence}",
        )
    return None
