"""The tables of what was timed; the renderers only draw them."""

from linattn_runtime_checks.report.table import Table
from linattn_runtime_checks.report.tables import size_text
from linattn_runtime_checks.results.latency import LatencyResult, LatencyTable, live_variant
from linattn_runtime_checks.results.report import Report


def latency_table(report: Report, *, dynamic_only: bool) -> Table | None:
    """Per artifact and length: p50 / p90, and the ratios of p50 to eager and to softmax."""
    latency = report.latency
    if latency is None or not latency.results:
        return None
    usual = ("dynamic", "step")
    shown = [r for r in latency.results if r.variant.startswith(usual)] if dynamic_only else []
    shown = shown or latency.results  # of fixed variants only, all are shown
    rows = [
        (
            f"{result.model}/{result.method}",
            result.runtime,
            result.variant,
            str(result.batch),
            str(result.sequence),
            f"{result.first_ms:.2f}",
            f"{result.p50_ms:.2f} / {result.p90_ms:.2f} / {result.p99_ms:.2f}",
            _ratio(
                result,
                latency.beside(result, runtime="eager", variant=live_variant(result.variant)),
            ),
            _ratio(result, latency.beside(result, method="softmax")),
        )
        for result in shown
    ]
    headings = (
        "model/method", "runtime", "variant", "batch", "tokens", "first ms",
        "p50 / p90 / p99 ms", "/ eager", "/ softmax",
    )  # fmt: skip
    note = (
        f"{circumstances(latency)}; ratios of medians in the same run, below 1 is faster; ? where "
        "the 95 % intervals of the medians overlap: inconclusive"
    )
    return Table(title="Latency", headings=headings, rows=rows, note=note)


def circumstances(latency: LatencyTable) -> str:
    """Under which load all of it was measured, and how."""
    return (
        f"{latency.threads} threads, load before {_load(latency.load_before)}, after "
        f"{_load(latency.load_after)}; everything at one length takes turns, idle threads sleep"
    )


def session_table(report: Report) -> Table:
    """Per runtime: the time to create a session."""
    times: dict[str, list[float]] = {}
    for artifact in report.artifacts:
        for result in artifact.runtimes:
            if result.session_ms is not None:
                times.setdefault(result.runtime, []).append(result.session_ms)
    rows = [
        (name, str(len(found)), f"{sorted(found)[len(found) // 2]:.1f}", f"{max(found):.1f}")
        for name, found in times.items()
    ]
    return Table(
        title="Session creation",
        headings=("runtime", "sessions", "median ms", "largest ms"),
        rows=rows,
        note="time to load an artifact and make it ready; not part of any latency",
    )


def crossover_table(report: Report) -> Table | None:
    """Per method and runtime: the measured length from which it beats softmax."""
    if report.latency is None or not report.latency.crossovers:
        return None
    rows = []
    for key, length in report.latency.crossovers.items():
        runtime, subject = key.split("/", 1)
        rows.append((subject, runtime, "not within the lengths measured" if length is None
                     else f"{length} tokens"))  # fmt: skip
    return Table(
        title="Faster than softmax from",
        headings=("model/method", "runtime", "from"),
        rows=sorted(rows),
        note="the shortest measured length from which the median is lower by a tenth or more, at "
        "every longer one too",
    )


def against_table(report: Report) -> Table | None:
    """What is worse than in the baseline, worst first."""
    if not report.against.changes:
        return None
    changes = report.against.changes
    shown = sorted((c for c in changes if c.worse), key=lambda change: -change.ratio)
    rows = [
        (
            change.what,
            change.subject,
            size_text(int(change.before)) if change.what == "size" else f"{change.before:.2f} ms",
            size_text(int(change.now)) if change.what == "size" else f"{change.now:.2f} ms",
            f"{change.ratio:.2f}",
        )
        for change in shown
    ]
    counts = {what: sum(c.what == what for c in changes) for what in ("size", "latency")}
    note = (
        f"{counts['size']} sizes and {counts['latency']} latencies were compared, {len(shown)} are "
        "worse; ratio: now / before, for latency with the speed of the machine divided out"
    )
    if report.against.uncompared:
        note += f"; {report.against.uncompared} latencies of the baseline were not measured here"
    headings = ("what", "of", "before", "now", "ratio")
    return Table(title="Against the baseline", headings=headings, rows=rows, note=note)


def _ratio(result: LatencyResult, other: LatencyResult | None) -> str:
    if other is None or other is result:
        return "-"
    mark = "?" if result.inconclusive(other) else ""
    return f"{result.p50_ms / other.p50_ms:.2f}{mark}"


def _load(load: float | None) -> str:
    return "unknown" if load is None else f"{load:.1f}"
