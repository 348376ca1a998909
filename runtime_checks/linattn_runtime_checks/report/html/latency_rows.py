"""The latency table of the page: every measurement, its interval, and what it is a multiple of."""

from linattn_runtime_checks.report.html.grid import NOTHING
from linattn_runtime_checks.report.html.values import short
from linattn_runtime_checks.report.latency_tables import circumstances
from linattn_runtime_checks.report.table import Table
from linattn_runtime_checks.results.latency import LatencyResult, live_variant
from linattn_runtime_checks.results.report import Report

_NOTE = (
    "95 %: the interval that holds the median; first: the first run at that length; / eager, "
    "/ softmax: ratios of medians in the same run, below 1 is faster; inconclusive: the intervals "
    "of the two medians overlap, so neither is seen to be faster"
)


def full_latency_table(report: Report) -> Table | None:
    """Everything that was timed, with more columns than a terminal takes; None if nothing was."""
    latency = report.latency
    if latency is None or not latency.results:
        return None
    rows = [
        (
            f"{result.model}/{result.method}",
            result.runtime,
            result.variant,
            str(result.batch),
            str(result.sequence),
            short(result.p50_ms),
            f"{short(result.low_ms)} to {short(result.high_ms)}",
            short(result.p90_ms),
            short(result.p99_ms),
            short(result.first_ms),
            str(result.runs),
            ratio_text(
                result,
                latency.beside(result, runtime="eager", variant=live_variant(result.variant)),
            ),
            ratio_text(result, latency.beside(result, method="softmax")),
        )
        for result in latency.results
    ]
    headings = (
        "model/method", "runtime", "variant", "batch", "tokens", "p50 ms", "95 %", "p90 ms",
        "p99 ms", "first ms", "runs", "/ eager", "/ softmax",
    )  # fmt: skip
    note = f"{circumstances(latency)}; {_NOTE}"
    return Table(title="Latency", headings=headings, rows=rows, note=note)


def ratio_text(result: LatencyResult, other: LatencyResult | None) -> str:
    """The ratio of the medians, with a word where the intervals do not tell them apart."""
    if other is None or other is result or not other.p50_ms > 0:
        return NOTHING
    ratio = short(result.p50_ms / other.p50_ms)
    return f"inconclusive {ratio}" if result.inconclusive(other) else ratio
