"""``report.md``."""

from linattn_runtime_checks.report.blame import blame_lines
from linattn_runtime_checks.report.families import family_table
from linattn_runtime_checks.report.latency_tables import (
    against_table,
    crossover_table,
    latency_table,
    session_table,
)
from linattn_runtime_checks.report.scores import task_table
from linattn_runtime_checks.report.table import Table
from linattn_runtime_checks.report.tables import (
    artifact_table,
    cost_table,
    left_out,
    summary,
)
from linattn_runtime_checks.results.report import Report


def render(report: Report) -> str:
    """The whole report as Markdown."""
    parts = [f"# linattn report: {report.verdict}", f"{summary(report)}."]
    findings = report.all_findings()
    if findings:
        lines = [f"- `{finding.code}` {finding.message}" for finding in findings]
        parts += ["## Findings", "\n".join(lines)]
    if blamed := blame_lines(report):
        parts += ["## Blame", "\n".join(f"- {line}" for line in blamed)]
    unused = left_out(report)
    if unused:
        parts += ["Not used here:", "\n".join(f"- {line}" for line in unused)]
    tables = (
        artifact_table(report),
        task_table(report),
        against_table(report),
        crossover_table(report),
        family_table(report),
        cost_table(report),
        latency_table(report, dynamic_only=False),
        session_table(report) if report.latency is not None else None,
    )
    parts += [_table(table) for table in tables if table is not None]
    rows: list[tuple[str, ...]] = [(name, str(value)) for name, value in report.environment.items()]
    parts.append(_table(Table(title="Environment", headings=("what", "value"), rows=rows, note="")))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    lines = [f"## {table.title}", ""]
    lines.append("| " + " | ".join(table.headings) + " |")
    lines.append("|" + " --- |" * len(table.headings))
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
              for row in table.rows]  # fmt: skip
    if table.note:
        lines += ["", f"{table.note[0].upper()}{table.note[1:]}."]
    return "\n".join(lines)
