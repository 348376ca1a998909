"""The tables of a report as headings and rows of text; the renderers only draw them."""

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.cost.exponent import NOT_BOUNDED, cell
from linattn_runtime_checks.report.scores import NOTE, score_cells, score_headings
from linattn_runtime_checks.report.table import Table
from linattn_runtime_checks.results.latency import LatencyTable
from linattn_runtime_checks.results.report import ArtifactResult, Report, RuntimeResult


def artifact_table(report: Report) -> Table:
    """Per artifact: size, verdict, error, and latency at its longest length."""
    chosen = "not asked for" in report.left_out.values()
    # What the runtimes that were asked for do not run is counted in the last line.
    shown = [a for a in report.artifacts if not (chosen and _unjudged(a))]
    scores = score_headings(shown)
    rows = [_artifact_row(artifact, report.latency, scored=bool(scores)) for artifact in shown]
    headings = (
        "artifact", "size", "params", "nodes", "verdict", *scores, "x rounding", "worst rel",
        "declared", "verified", "batches", "p50 / p90 ms",
    )  # fmt: skip
    note = (
        "x rounding: largest error as a multiple of what rounding costs on that input (at most 4 "
        "passes); worst rel: largest relative error of a row against float64; declared, verified: "
        "lengths that the file promises, and that were run (how many); batches: verified of those "
        "declared; latency at the longest length of the artifact"
    )
    note = f"{NOTE}; {note}" if scores else note
    sides = {artifact.padding for artifact in shown} - {"any"}
    note += "".join(
        f"; padding is promised to change nothing on the {side} only: "
        + ", ".join(artifact.id for artifact in shown if artifact.padding == side)
        for side in sorted(sides)
    )
    return Table(title="Artifacts", headings=headings, rows=rows, note=note)


def _unjudged(artifact: ArtifactResult) -> bool:
    """Whether no runtime compared it, and nothing is wrong with it beside that."""
    findings = [*artifact.findings, *(f for r in artifact.runtimes for f in r.findings)]
    return not artifact.judged and all(f.code is Code.NOT_JUDGED for f in findings)


def _artifact_row(
    artifact: ArtifactResult, latency: LatencyTable | None, *, scored: bool
) -> tuple[str, ...]:
    verdict = "NOT JUDGED" if _unjudged(artifact) else artifact.exit_code.name
    verified = artifact.verified_sequence
    return (
        artifact.id,
        size_text(artifact.bytes),
        f"{artifact.parameters:,}",
        "-" if artifact.nodes is None else str(artifact.nodes),
        verdict,
        *(score_cells(artifact) if scored else ()),
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
    if report.not_made:
        text += f", {len(report.not_made)} could not be made"
    return text


def left_out(report: Report) -> list[str]:
    """Artifacts that were not made and runtimes that were not used, with the reason."""
    unused = {name: why for name, why in report.left_out.items() if why != "not asked for"}
    return [f"{name}: {why}" for name, why in (report.not_made | unused).items()]


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
                    cell(result.memory_exponent),
                    cell(latency),
                )
            )
    if not rows:
        return None
    note = (
        "tensors: how the largest tensor of the graph grows with the length, and the node that "
        "makes a quadratic one; memory, latency: the power of the length with which peak memory "
        "and median latency grow over the lengths measured, with a 95 % interval; "
        f"{NOT_BOUNDED}: the interval may hold both linear and quadratic"
    )
    headings = ("artifact", "runtime", "tensors", "memory", "latency")
    return Table(title="Cost in the sequence length", headings=headings, rows=rows, note=note)


def _certificate(result: RuntimeResult) -> str:
    if result.cost is None:
        return "-"
    if result.cost.kind == "quadratic":
        return f"quadratic: {result.cost.quadratic[0].node}"
    return result.cost.kind
