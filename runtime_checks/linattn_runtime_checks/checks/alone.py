"""A sequence alone gives what it gives in a batch, with and without padding."""

from typing import Any

from numpy.typing import NDArray

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.checks.inputs import PADDED, closest, usual
from linattn_runtime_checks.checks.outputs import apart, promised
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import Case
from linattn_runtime_checks.contract.manifest import TensorSpec
from linattn_runtime_checks.contract.token_axes import rows_of


def _run(context: Context) -> list[Problem] | None:
    session, artifact, reference = context.session, context.artifact, context.reference
    cases = usual(artifact, reference)
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
                    return [Problem(code=Code.BATCH_DEPENDENT, message=message)]
    return []


def _usual_shortest_and_padded(cases: list[Case]) -> list[Case]:
    """The cases on which a mask or a size that is special alone would show."""
    normal = [case for case in cases if case.family == "normal"]
    shortest = min(normal, key=lambda case: (case.sequence, case.batch), default=None)
    chosen = [closest(normal)] if normal else []
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


ALONE = Check(
    name="alone",
    title="a sequence alone gives what it gives in a batch, with and without padding",
    codes=(Code.BATCH_DEPENDENT,),
    run=_run,
    faults=("mask-dropped-alone", "batch-frozen-inside"),
)
