"""Does an artifact still do its job? Runs held-out data and compares the score with float64's."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.checks.pieces import run_pieces
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.contract.golden_pack import Reference, ReferenceIndex, Tensors
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.metrics import METRICS, Metric
from linattn_runtime_checks.results.report import TaskResult
from linattn_runtime_checks.runtimes.base import RunFailed, Runtime, Session


def run_task(session: Session, artifact: Artifact, reference: Reference) -> TaskResult | None:
    """The task's score, or None where the model has no task or the artifact cannot take it.

    A graph with a state takes each row piece by piece: a step one token after the other.

    Raises:
        RunFailed: it does not run, or its outputs are not of the shape that the metric needs.
        ExportError: the golden pack names a metric that this linattn does not have.
    """
    task = reference.index.task
    if task is None:
        return None
    metric = metric_of(task.metric)
    inputs, labels = reference.task_data()
    length = next(iter(inputs.values())).shape[1]
    low, high = artifact.axis("sequence").declared
    piece = min(length, high)
    if piece < low or length % piece or (piece < length and not artifact.states):
        return None
    least, most = artifact.axis("batch").declared
    parts = []
    for start in range(0, len(labels), most):
        rows = np.arange(start, min(start + most, len(labels)))
        # A batch that must not be smaller is filled up with the first rows.
        filled = np.concatenate([rows, np.arange(max(least - len(rows), 0)) % len(labels)])
        batch = {name: tensor[filled] for name, tensor in inputs.items()}
        output = _output(session, artifact, batch, [piece] * (length // piece))
        leading, classes = [len(filled), *labels.shape[1:]], int(labels.max()) + 1
        if list(output.shape[:-1]) != leading or output.shape[-1] < classes:
            raise RunFailed(
                f"the output has shape {list(output.shape)}, which does not go with labels "
                f"{leading} of {classes} classes"
            )
        parts.append(output[: len(rows)])
    return TaskResult(
        metric=metric.name,
        score=metric.score(np.concatenate(parts), labels),
        reference_score=task.reference_score,
        allowed=task.allowed,
        samples=len(labels),
        description=task.description,
    )


def metric_of(name: str) -> Metric:
    """The metric called ``name``.

    Raises:
        ExportError: there is none.
    """
    if name not in METRICS:
        raise ExportError(
            f"the golden pack scores by {name!r}; known: {', '.join(METRICS)}; upgrade linattn or "
            "build the folder again"
        )
    return METRICS[name]


def fallen(result: TaskResult) -> list[Problem]:
    """The problem of a score that is worse than float64's by more than rounding explains."""
    metric = metric_of(result.metric)
    if metric.fall(result.score, result.reference_score) <= result.allowed:  # NaN is not
        return []
    message = (
        f"{metric.title} on held-out data is {metric.text(result.score)}, that of the "
        f"float64 module {metric.text(result.reference_score)}; rounding explains a change of "
        f"{metric.text(result.allowed)}"
    )
    return [Problem(code=Code.METRIC_FELL, message=message)]


def _output(
    session: Session, artifact: Artifact, inputs: Tensors, pieces: list[int]
) -> NDArray[Any]:
    if artifact.states:
        return run_pieces(session, artifact, inputs, pieces)
    outputs = session.run(inputs)
    name = artifact.outputs[0].name
    if name not in outputs:
        raise RunFailed(f"no output is called {name}")
    return outputs[name].copy()


def _run(context: Context) -> list[Problem] | None:
    try:
        found = run_task(context.session, context.artifact, context.reference)
    except (RunFailed, ExportError) as error:
        message = f"held-out data does not run: {error}"
        return [Problem(code=Code.RUN_FAILED, message=message)]
    context.result.task = found
    return None if found is None else fallen(found)


def _applies(artifact: Artifact, runtime: Runtime, index: ReferenceIndex | None) -> bool:
    return index is not None and index.task is not None


TASK = Check(
    name="task",
    title="the score on held-out data is that of float64, as far as rounding allows",
    codes=(Code.METRIC_FELL,),
    applies=_applies,
    run=_run,
)
