"""Latency in ``report.json``."""

from pydantic import BaseModel

from linattn_runtime_checks.cost.exponent import Exponent


def live_variant(name: str) -> str:
    """What the live module of an entry, or of a variant of one, is called among the latencies."""
    entry = name.split("-")[0]
    return entry if entry in ("prefill", "step") else "dynamic"


class LatencySubject(BaseModel):
    """What a latency is of: an artifact, or eager, at one length and batch."""

    model: str
    method: str
    format: str
    variant: str
    runtime: str
    batch: int
    sequence: int

    @property
    def key(self) -> str:
        """Unique in a report, and for people too."""
        name = f"{self.model}/{self.method}/{self.format}/{self.variant}"
        return f"{name} on {self.runtime}, batch {self.batch}, {self.sequence} tokens"


class LatencyResult(LatencySubject):
    """Its time, in milliseconds."""

    runs: int
    first_ms: float
    min_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    low_ms: float
    """With ``high_ms``, the 95 % interval of the median."""
    high_ms: float

    def inconclusive(self, other: "LatencyResult") -> bool:
        """Whether the intervals of the two medians overlap: neither is seen to be faster."""
        return self.low_ms <= other.high_ms and other.low_ms <= self.high_ms


class LatencyTable(BaseModel):
    """All latencies of one interleaved run."""

    threads: int
    load_before: float | None
    load_after: float | None
    machine_ms: dict[int, float]
    """Length in tokens to the median time of one fixed matrix product, measured among the turns."""
    results: list[LatencyResult] = []
    crossovers: dict[str, int | None] = {}
    exponents: dict[str, Exponent] = {}
    """``runtime/model/method`` to the power of the length with which the median grows."""

    def beside(self, result: LatencyResult, **other: str) -> LatencyResult | None:
        """The result that differs from ``result`` in ``other`` alone; any format will do."""
        wanted = {
            name: getattr(result, name)
            for name in ("runtime", "model", "method", "variant", "batch", "sequence")
        } | other
        return next(
            (
                each
                for each in self.results
                if all(getattr(each, name) == value for name, value in wanted.items())
            ),
            None,
        )
