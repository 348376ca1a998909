"""The same input gives the same bytes, with another input in between."""

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.checks.inputs import closest, usual
from linattn_runtime_checks.checks.outputs import differing, promised
from linattn_runtime_checks.contract.codes import Code


def _run(context: Context) -> list[Problem] | None:
    session, artifact, reference = context.session, context.artifact, context.reference
    cases = usual(artifact, reference)
    if not cases:
        return None
    case = closest(cases)
    between = max(cases, key=lambda other: (other.name != case.name, -other.batch * other.sequence))
    first = promised(session, artifact, reference.inputs(case))
    session.run(reference.inputs(between))
    second = promised(session, artifact, reference.inputs(case))
    for name, output in first.items():
        if output.tobytes() != second[name].tobytes():
            message = f"{case.name} run twice: {differing(output, second[name])} of {name} differ"
            return [Problem(code=Code.NOT_DETERMINISTIC, message=message)]
    return []


DETERMINISTIC = Check(
    name="deterministic",
    title="the same input gives the same bytes, with another input in between",
    codes=(Code.NOT_DETERMINISTIC,),
    run=_run,
    faults=("state-between-runs",),
)
