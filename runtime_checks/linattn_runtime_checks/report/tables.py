"""The tables of a report as headings and rows of text; the renderers only draw them."""

from collections.abc import Sequence
from dataclasses import dataclass

from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.cost.exponent import Exponent
from linattn_runtime_checks.errors import ExitCode
from linattn_runtime_checks.report.latency import LatencyResult, LatencyTable
from linattn_runtime_checks.report.model import (
    ArtifactResult,
    Report,
    RuntimeResult,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; ``note`` explains its columns."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str


def artifact_table(report: Report) -> Table:
    """Per artifact: size, verdict, error, and latency at its longest length."""
    chosen = "not asked for" in report.left_out.values()
    # What the runtimes that were asked for do not run is counted in the last line.
    shown = [a for a in report.artifacts if not (chosen and _unjudged(a))]
    rows = [_artifact_row(artifact, report.latency) for artifact in shown]
    headings = (
        "artifact", "size", "params", "nodes", "verdict", "x rounding", "worst rel",
        "declared", "verified", "batches", "p50 / p90 ms",
    )  # fmt: skip
    note = (
        "x rounding: largest error as a multiple of what rounding costs on that input (at most 4 "
        "passes); worst rel: largest relative error of a row against float64; declared, verified: "
        "lengths that the file promises, and that were run (how many); batches: verified of those "
        "declared; latency at the longest length of the artifact"
    )
    return Table(title="Artifacts", headings=headings, rows=rows, note=note)


def latency_table(report: Report, *, dynamic_only: bool) -> Table | None:
    """Per artifact and length: p50 / p90, and the ratios of p50 to eager and to softmax."""
    latency = report.latency
    if latency is None or not latency.results:
        return None
    shown = [r for r in latency.results if r.variant.startswith("dynamic")] if dynamic_only else []
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
            _ratio(result, latency.beside(result, runtime="eager", variant="dynamic")),
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
    headings = ("what", "of", "before", "now", "ratio")
    return Table(title="Against the baseline", headings=headings, rows=rows, note=note)


def task_table(report: Report) -> Table | None:
    """Per artifact and runtime: the score on held-out data beside that of the float64 module."""
    rows = []
    for artifact in report.artifacts:
        for runtime in artifact.runtimes:
            if runtime.task is not None:
                rows.append(
                    (
                        artifact.id,
                        runtime.runtime,
                        f"{runtime.task.score:.2%}",
                        f"{runtime.task.reference_score:.2%}",
                        str(runtime.task.samples),
                    )
                )
    if not rows:
        return None
    return Table(
        title="Held-out accuracy (top-1)",
        headings=("artifact", "runtime", "artifact's", "float64 PyTorch's", "images"),
        rows=rows,
        note="images that were not used in training",
    )


def _unjudged(artifact: ArtifactResult) -> bool:
    """Whether no runtime compared it, and nothing is wrong with it beside that."""
    findings = [*artifact.findings, *(f for r in artifact.runtimes for f in r.findings)]
    return not artifact.judged and all(f.code is Code.NOT_JUDGED for f in findings)


def _artifact_row(artifact: ArtifactResult, latency: LatencyTable | None) -> tuple[str, ...]:
    verdict = "NOT JUDGED" if _unjudged(artifact) else artifact.exit_code.name
    verified = artifact.verified_sequence
    return (
        artifact.id,
        size_text(artifact.bytes),
        f"{artifact.parameters:,}",
        "-" if artifact.nodes is None else str(artifact.nodes),
        verdict,
        "-" if artifact.multiple is None else f"{artifact.multiple:.2f}",
        "-" if artifact.row_error is None else f"{artifact.row_error:.1e}",
        _span(artifact.declared_sequence),
        "-" if verified is None else f"{_span(verified)} ({len(artifact.lengths)})",
        _batches(artifact),
        _longest(artifact, latency),
    )


def _batches(artifact: ArtifactResult) -> str:
    if artifact.verified_batch is None:
        return "-"
    verified, declared = artifact.verified_batch, artifact.declared_batch
    text = _span(verified)
    return text if declared in (None, verified) else f"{text} of {_span(declared)}"


def _longest(artifact: ArtifactResult, latency: LatencyTable | None) -> str:
    found = [
        result
        for result in (latency.results if latency is not None else [])
        if (result.model, result.method, result.format, result.variant)
        == (artifact.model, artifact.method, artifact.format, artifact.variant)
    ]
    if not found:
        return "-"
    longest = max(found, key=lambda result: (result.sequence, -result.batch))
    return f"{longest.p50_ms:.2f} / {longest.p90_ms:.2f}"


def _span(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}..{ends[1]}"


def _ratio(result: LatencyResult, other: LatencyResult | None) -> str:
    if other is None or other is result:
        return "-"
    mark = "?" if result.inconclusive(other) else ""
    return f"{result.p50_ms / other.p50_ms:.2f}{mark}"


def _load(load: float | None) -> str:
    return "unknown" if load is None else f"{load:.1f}"


def size_text(size: int) -> str:
    """Bytes for people."""
    if size < 1024:
        return f"{size} B"
    if size < 1024**2:
        return f"{size / 1024:.0f} KiB"
    return f"{size / 1024**2:.1f} MiB"


def summary(report: Report) -> str:
    """One line: how many artifacts were judged, and how they did."""
    judged = [artifact for artifact in report.artifacts if artifact.judged]
    passed = [artifact for artifact in judged if artifact.exit_code is ExitCode.PASS]
    text = f"{len(passed)} of {len(report.artifacts)} artifacts pass"
    if len(judged) < len(report.artifacts):
        text += f", {len(report.artifacts) - len(judged)} were not judged"
    return text


def left_out(report: Report) -> list[str]:
    """Runtimes that were not used, with the reason."""
    return [
        f"{name}: {reason}" for name, reason in report.left_out.items() if reason != "not asked for"
    ]


def cost_table(report: Report) -> Table | None:
    """Per dynamic artifact and runtime: growth of its tensors, of its memory and of its latency."""
    exponents = report.latency.exponents if report.latency is not None else {}
    rows = []
    for artifact in report.artifacts:
        for result in artifact.runtimes:
            if result.cost is None and result.memory_exponent is None:
                continue
            if artifact.declared_sequence[0] == artifact.declared_sequence[1]:
                continue
            latency = exponents.get(f"{result.runtime}/{artifact.model}/{artifact.method}")
            rows.append(
                (
                    artifact.id,
                    result.runtime,
                    _certificate(result),
                    _exponent(result.memory_exponent),
                    _exponent(latency),
                )
            )
    if not rows:
        return None
    note = (
        "tensors: how the largest tensor of the graph grows with the length, and the node that "
        "makes a quadratic one; memory, latency: the power of the length with which peak memory "
        "and median latency grow over the lengths measured, with a 95 % interval"
    )
    headings = ("artifact", "runtime", "tensors", "memory", "latency")
    return Table(title="Cost in the sequence length", headings=headings, rows=rows, note=note)


def _certificate(result: RuntimeResult) -> str:
    if result.cost is None:
        return "-"
    if result.cost.kind == "quadratic":
        return f"quadratic: {result.cost.quadratic[0].node}"
    return result.cost.kind


def _exponent(found: Exponent | None) -> str:
    return "-" if found is None else f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
