"""What a manifest keeps of the checks: the outcome and the latency on each runtime."""

from pydantic import BaseModel


class RuntimeCheck(BaseModel):
    """The outcome of one runtime on one artifact; the cases are in report.json.

    ``score`` by ``metric`` is that of the artifact on held-out data, where its model has a task.
    """

    runtime: str
    status: str
    multiple: float | None
    cases: int
    metric: str | None = None
    score: float | None = None


class LatencyEntry(BaseModel):
    """Latency of one artifact at one length, milliseconds."""

    runtime: str
    batch: int
    sequence: int
    p50_ms: float
    p90_ms: float
