"""Reordered tokens give reordered outputs, where the method implies it."""

import numpy as np

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.checks.inputs import with_tokens
from linattn_runtime_checks.checks.outputs import apart, promised
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.token_axes import reordered


def _run(context: Context) -> list[Problem] | None:
    session, artifact, reference = context.session, context.artifact, context.reference
    case = with_tokens(artifact, reference)
    if case is None or not all("sequence" in spec.axes for spec in artifact.outputs):
        return None
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
            return [Problem(code=Code.NOT_EQUIVARIANT, message=message)]
    return []


EQUIVARIANT = Check(
    name="equivariant",
    title="reordered tokens give reordered outputs, where the method implies it",
    codes=(Code.NOT_EQUIVARIANT,),
    applies=lambda artifact, runtime, index: artifact.equivariant,
    run=_run,
    faults=("last-token-missing",),
)
