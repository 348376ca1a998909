"""Every case of the golden packs agrees with float64 as far as rounding allows."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.blame.inexact import excused
from linattn_runtime_checks.checks.base import Check, Context, Problem, When
from linattn_runtime_checks.checks.inputs import cases_for
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import Reference
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import Comparison, compare
from linattn_runtime_checks.results.report import CaseResult
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors

_OUTSIDE = "the module itself gives NaN or infinity on these inputs, in float64 too"


def _run(context: Context) -> list[Problem]:
    def told(name: str) -> None:
        context.tell(f"{name} ({context.mode})")

    outcomes = [
        (pack, list(run_cases(context.session, context.artifact, pack, context.mode, told)))
        for pack in context.packs
    ]
    cases = [outcome for _, of_pack in outcomes for outcome in of_pack]
    # What is planted in a session is no kernel.
    if context.runtime.judges_kernels and not context.planted:
        cases = excused(context.path, context.artifact, outcomes, context.session, told)
    context.cases = cases
    context.result.cases += cases
    return [_summed(context, code) for code in sorted({case.code for case in cases} - {Code.PASS})]


def _summed(context: Context, code: Code) -> Problem:
    """All cases of one mode that have this code, and the worst of them."""
    bad = [case for case in context.cases if case.code == code]
    worst = max(bad, key=lambda case: case.multiple or 0.0)
    lengths = ", ".join(map(str, sorted({case.sequence for case in bad})))
    return Problem(
        code=code,
        message=f"{len(bad)} of {len(context.cases)} cases, lengths {lengths}; worst "
        f"{worst.case}: {worst.message}",
        place=f"{context.where} ({worst.mode})",
    )


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
            rounding = case.rounding(name)
            yield CaseResult(**common, rounding=rounding, nonfinite=lost, **numbers)


def _lost(inputs: Tensors, output: NDArray[Any]) -> bool:
    """Whether NaN or infinity came out though none went in."""
    went_in = all(np.isfinite(x).all() for x in inputs.values() if x.dtype.kind == "f")
    return went_in and not np.isfinite(output).all()


def _numbers(result: Comparison) -> dict[str, Any]:
    names = ("code", "message", "multiple", "row_error", "whole_error", "max_abs", "worst_index")
    return {name: getattr(result, name) for name in names}


PARITY = Check(
    name="parity",
    title="every case agrees with float64 as far as rounding allows",
    codes=(
        Code.RUN_FAILED,
        Code.OUTPUT_MISSING,
        Code.PARITY_EXCEEDED,
        Code.NONFINITE_MISMATCH,
        Code.ZERO_ROW_NOT_ZERO,
        Code.INCONCLUSIVE,
        Code.PRECISION_LOST,
        Code.OUTSIDE_DOMAIN,
        Code.RUNTIME_INEXACT,
    ),
    shares=(Code.SHAPE_MISMATCH, Code.DTYPE_MISMATCH),
    when=When.EVERY_MODE,
    run=_run,
    faults=(
        "softmax-axis",
        "scale-missing",
        "query-ignored",
        "key-and-value-swapped",
        "normaliser-dropped",
        "eps-dropped",
        "head-ignored",
        "weight-transposed",
        "weight-x-1.001",
        "projections-swapped",
        "mask-ignored",
        "mask-inverted",
        "mask-off-by-one",
        "mask-on-value-only",
        "mask-dropped-alone",
        "holes-filled",
        "bfloat16-products",
        "exponential-approximated",
        "count-frozen",
        "loop-unrolled",
        "batch-frozen-inside",
        "stale-output",
        "nan-at-one-position",
        "swapped-outputs",
        "last-token-missing",
        "bfloat16-output",
        "state-between-runs",
        "future-leaks",
        "state-forgotten",
        "state-kept",
        "state-fades",
    ),
    by_case=True,
)
