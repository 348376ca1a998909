"""Another token changes no byte of the outputs before it, where it must not."""

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.checks.inputs import with_tokens
from linattn_runtime_checks.checks.outputs import differing, promised
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.token_axes import another_from, until


def _run(context: Context) -> list[Problem] | None:
    session, artifact, reference = context.session, context.artifact, context.reference
    case = with_tokens(artifact, reference)
    along = [spec for spec in artifact.outputs if "sequence" in spec.axes]
    if case is None or not along:
        return None
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
                return [Problem(code=Code.FUTURE_LEAKS, message=message)]
    return []


CAUSAL = Check(
    name="causal",
    title="another token changes no byte of the outputs before it, where it must not",
    codes=(Code.FUTURE_LEAKS,),
    applies=lambda artifact, runtime, index: artifact.causal,
    run=_run,
    faults=("future-leaks",),
)
