"""The held-out data of a golden pack, and what the live module scores on it."""

from typing import Any

import torch
from torch import Tensor, nn

from linattn_export.subjects.subject import Subject
from linattn_models import Task
from linattn_runtime_checks.contract.golden_pack import TaskIndex
from linattn_runtime_checks.contract.metrics import METRICS


def task_of(subject: Subject, tensors: dict[str, Any]) -> TaskIndex | None:
    """Add the task's data to ``tensors``; None where the model or this graph of it has none.

    Every graph of a model is held to the score of the whole sequence in float64.
    """
    task, names = subject.task, {spec.name for spec in subject.inputs}
    if task is None or not set(task.inputs) <= names:
        return None
    inputs = {
        name: x.to(subject.dtype) if x.is_floating_point() else x for name, x in task.inputs.items()
    }
    for name, tensor in inputs.items():
        tensors[f"task/input/{name}"] = tensor.numpy()
    tensors["task/labels"] = task.labels.numpy()
    wide = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    reference = _score(subject, subject.wide, wide, task)
    eager = _score(subject, subject.module, inputs, task)
    metric = METRICS[task.metric]
    return TaskIndex(
        metric=metric.name,
        description=task.description,
        reference_score=reference,
        allowed=metric.allowed(reference, eager, task.labels.numel()),
        classes=list(subject.model.labels),
    )


@torch.no_grad()
def _score(subject: Subject, module: nn.Module, inputs: dict[str, Tensor], task: Task) -> float:
    entry = subject.model.entry(module, subject.masked, 0).eval()
    ordered = [inputs[s.name] for s in subject.model.inputs(module, subject.masked)]
    output: Tensor = entry(*ordered)
    return METRICS[task.metric].score(output.numpy(), task.labels.numpy())
