"""What the reports say of scores on held-out data: in the table of artifacts, and by runtime."""

import math
from collections.abc import Sequence

from linattn_runtime_checks.contract.metrics import METRICS
from linattn_runtime_checks.report.table import Table
from linattn_runtime_checks.results.report import ArtifactResult, Report, TaskResult

NOTE = "scores: on held-out data, the worst of the runtimes, beside that of PyTorch in float64"


def score_headings(artifacts: Sequence[ArtifactResult]) -> tuple[str, ...]:
    """Of the columns of :func:`score_cells`; none where no artifact has a score."""
    titles = {METRICS[task.metric].title for artifact in artifacts for task in _tasks(artifact)}
    if not titles:
        return ()
    return titles.pop() if len(titles) == 1 else "score", "in float64"


def score_cells(*artifacts: ArtifactResult) -> tuple[str, str]:
    """The worst score of the runtimes on any of ``artifacts``, and that of their float64 module."""
    tasks = [task for artifact in artifacts for task in _tasks(artifact)]
    if not tasks:
        return "-", "-"
    metric = METRICS[tasks[0].metric]
    # A score that is no number is worse than any.
    worst = max(tasks, key=lambda task: (math.isnan(task.score), metric.fall(task.score, 0.0)))
    return metric.text(worst.score), metric.text(worst.reference_score)


def task_table(report: Report) -> Table | None:
    """Per artifact and runtime: the score on held-out data beside that of the float64 module."""
    rows: list[tuple[str, ...]] = []
    told: dict[str, None] = {}
    for artifact in report.artifacts:
        for runtime in artifact.runtimes:
            if (task := runtime.task) is None:
                continue
            metric = METRICS[task.metric]
            told[f"{artifact.model}: {task.description}"] = None
            rows.append(
                (
                    artifact.id,
                    runtime.runtime,
                    runtime.exit_code.name,
                    metric.title,
                    metric.text(task.score),
                    metric.text(task.reference_score),
                    metric.text(task.allowed),
                    str(task.samples),
                )
            )
    if not rows:
        return None
    note = (
        "worse by at most: than float64, by what rounding explains; a larger fall is metric_fell; "
    )
    return Table(
        title="Task on held-out data",
        headings=(
            "artifact", "runtime", "verdict", "metric", "artifact's", "float64 PyTorch's",
            "worse by at most", "samples",
        ),
        rows=rows,
        note=note + "; ".join(told),
    )  # fmt: skip


def _tasks(artifact: ArtifactResult) -> list[TaskResult]:
    return [runtime.task for runtime in artifact.runtimes if runtime.task is not None]
