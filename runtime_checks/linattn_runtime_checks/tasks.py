"""Does an artifact still do its job? Runs held-out data and compares the score with float64's."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.errors import ExportError
from linattn_runtime_checks.manifest import Artifact
from linattn_runtime_checks.metrics import METRICS, Metric
from linattn_runtime_checks.reference import Reference, Tensors
from linattn_runtime_checks.report.model import Finding, TaskResult
from linattn_runtime_checks.runtimes.base import RunFailed, Session
from linattn_runtime_checks.streaming import run_pieces


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
        output = _run(session, artifact, batch, [piece] * (length // piece))
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


def check_task(result: TaskResult, where: str) -> Finding | None:
    """A finding where the score is worse than that of float64 by more than rounding explains."""
    metric = metric_of(result.metric)
    if metric.fall(result.score, result.reference_score) <= result.allowed:  # NaN is not
        return None
    return Finding.of(
        Code.METRIC_FELL,
        f"{where}: {metric.title} on held-out data is {metric.text(result.score)}, that of the "
        f"float64 module {metric.text(result.reference_score)}; rounding explains a change of "
        f"{metric.text(result.allowed)}",
    )


def check_labels(session: Session, artifact: Artifact, reference: Reference) -> Finding | None:
    """A finding where classes are not named alike in the manifest, the golden pack and the file.

    Applications read the manifest or the file's metadata; the golden pack was scored by the names.
    """
    task = reference.index.task
    named = {"the golden pack": json.dumps(task.classes)} if task is not None else {}
    if artifact.format == "onnx":
        named["the file"] = session.labels() or "[]"
    for what, found in named.items():
        if found != json.dumps(artifact.labels):
            return Finding.of(
                Code.LABELS_DIFFER,
                f"{artifact.id}: classes are {json.dumps(artifact.labels)} in the manifest, "
                f"{found} in {what}",
            )
    return None


def _run(session: Session, artifact: Artifact, inputs: Tensors, pieces: list[int]) -> NDArray[Any]:
    if artifact.states:
        return run_pieces(session, artifact, inputs, pieces)
    outputs = session.run(inputs)
    name = artifact.outputs[0].name
    if name not in outputs:
        raise RunFailed(f"no output is called {name}")
    return outputs[name].copy()
