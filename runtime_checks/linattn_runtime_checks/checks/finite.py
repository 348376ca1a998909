"""Finite inputs give finite outputs."""

from collections.abc import Sequence

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.checks.inputs import usual
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.results.report import CaseResult


def _run(context: Context) -> list[Problem] | None:
    if not usual(context.artifact, context.reference):
        return None
    return not_finite(context.result.cases)


def not_finite(cases: Sequence[CaseResult]) -> list[Problem]:
    """The problem of cases from which NaN or infinity came out though none went in."""
    bad = [case for case in cases if case.nonfinite]
    if not bad:
        return []
    names = ", ".join(sorted({case.case for case in bad})[:4])
    message = f"finite inputs gave NaN or infinity in {len(bad)} case(s): {names}"
    if all(case.code is Code.PASS for case in bad):
        message += (
            "; the module itself does so, in float64 too, so it is no fault of the file: mend the "
            "module, or describe what it takes (range, positive; empty_rows = false of a mask)"
        )
    return [Problem(code=Code.NONFINITE_OUTPUT, message=message)]


FINITE = Check(
    name="finite",
    title="finite inputs give finite outputs",
    codes=(Code.NONFINITE_OUTPUT,),
    run=_run,
    faults=("nan-at-one-position",),
)
