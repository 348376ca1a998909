"""Does a graph with a state, run piece by piece, give what the whole sequence gives?

The golden pack holds one sequence and its float64 outputs. A step takes it token after token, a
prefill in pieces; each run is fed the states that came out of the one before, by the manifest's
contract, so a contract that names the wrong tensor, a state that is not handed on, or one that
grows, shows here.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import Case
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import compare
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors

_CUTS = (1, 2, 31)
"""Lengths of the pieces of a prefill; the rest is the last."""


def _run(context: Context) -> list[Problem] | None:
    session, artifact, reference = context.session, context.artifact, context.reference
    case = reference.index.stream
    if case is None:
        return None
    pieces = _pieces(artifact, case)
    if pieces is None or not artifact.accepts(case.batch, pieces[0]):
        return None
    output = artifact.outputs[0]
    got = run_pieces(session, artifact, reference.inputs(case), pieces)
    expected = reference.outputs(case)[output.name]
    result = compare(got, expected, output.dtype, case.yardstick())
    if result.code is Code.PASS:
        return []
    how = "token by token" if len(pieces) == case.sequence else f"in pieces of {_said(pieces)}"
    message = f"{case.sequence} tokens {how} are not the whole: {result.message}"
    return [Problem(code=Code.PIECES_DIFFER, message=message)]


def run_pieces(
    session: Session, artifact: Artifact, inputs: Tensors, pieces: list[int]
) -> NDArray[Any]:
    """The first output of all pieces, joined; states start as the manifest says."""
    along = {spec.name: spec.axes.index("sequence") for spec in artifact.inputs
             if "sequence" in spec.axes and spec.dtype != "bool"}  # fmt: skip
    batch = next(iter(inputs.values())).shape[0]
    states: Tensors = {
        link.input: np.zeros([batch, *map(int, link.shape[1:])], dtype=link.dtype)
        for link in artifact.states
    }
    parts, start = [], 0
    for piece in pieces:
        feed = {
            name: np.ascontiguousarray(np.take(inputs[name], range(start, start + piece), axis))
            for name, axis in along.items()
        }
        feed |= {
            spec.name: np.ones([batch, piece], dtype=bool)
            for spec in artifact.inputs
            if spec.dtype == "bool"
        }
        outputs = session.run(feed | states)
        for name in (artifact.outputs[0].name, *(link.output for link in artifact.states)):
            if name not in outputs:
                raise RunFailed(f"no output is called {name}")
        for link in artifact.states:
            states[link.input] = outputs[link.output].copy()
        parts.append(outputs[artifact.outputs[0].name].copy())
        start += piece
    return np.concatenate(parts, axis=artifact.outputs[0].axes.index("sequence"))


def _pieces(artifact: Artifact, case: Case) -> list[int] | None:
    low, high = artifact.axis("sequence").declared
    if low == high:
        whole, rest = divmod(case.sequence, low)
        return None if rest or whole < 2 else [low] * whole
    cuts = [min(max(cut, low), high) for cut in _CUTS]
    last = case.sequence - sum(cuts)
    return [*cuts, last] if low <= last <= high else None


def _said(pieces: list[int]) -> str:
    return ", ".join(map(str, pieces))


PIECES = Check(
    name="pieces",
    title="a sequence run piece by piece, state by state, is the whole",
    codes=(Code.PIECES_DIFFER,),
    applies=lambda artifact, runtime, index: bool(artifact.states),
    run=_run,
    faults=("state-forgotten", "state-kept", "state-fades"),
)
