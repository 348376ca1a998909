"""A fixed artifact must refuse every other length; an output for one is a fault."""

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.runtimes.base import RunFailed


def _run(context: Context) -> list[Problem]:
    """A golden pack in which there is no other length to try proves nothing."""
    artifact, reference = context.artifact, context.reference
    length, _ = artifact.axis("sequence").declared
    low, high = artifact.axis("batch").declared
    others = [
        case
        for case in reference.index.cases
        if case.sequence != length and low <= case.batch <= high
    ]
    if not others:
        message = (
            f"fixed to sequence length {length}, and its golden pack holds no other length to see "
            "it refuse; build the folder again"
        )
        return [Problem(code=Code.REFUSAL_UNVERIFIED, message=message)]
    for other in sorted(others, key=lambda case: abs(case.sequence - length))[:2]:
        try:
            context.session.run(reference.inputs(other))
        except RunFailed:
            continue
        message = f"fixed to sequence length {length} but ran one of {other.sequence}"
        return [Problem(code=Code.LENGTH_NOT_REFUSED, message=message)]
    return []


REFUSAL = Check(
    name="refusal",
    title="a fixed artifact refuses every other length",
    codes=(Code.LENGTH_NOT_REFUSED, Code.REFUSAL_UNVERIFIED),
    applies=lambda artifact, runtime, index: artifact.refuses_lengths,
    run=_run,
    faults=("length-fitted",),
)
