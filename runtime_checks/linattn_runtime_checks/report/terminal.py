"""The report on a terminal, on stderr."""

import shlex
from pathlib import Path

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.report.blame import blame_lines
from linattn_runtime_checks.report.families import family_table
from linattn_runtime_checks.report.latency_tables import (
    against_table,
    crossover_table,
    latency_table,
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

_STYLES = {"PASS": "green", "NOT JUDGED": "yellow", "UNVERIFIED": "yellow"}
_TEXT = (
    "runtime", "variant", "verdict", "metric", "from", "what", "mostly seen as", "tensors", "of",
)  # fmt: skip
_SHOWN_FINDINGS = 20
WIDTH_ELSEWHERE = 160
_DISPENSABLE = (
    "nodes", "params", "declared", "batches", "first ms", "worst rel", "size", "samples",
    "worse by at most", "variant", "verified", "float64 PyTorch's", "/ softmax", "memory",
    "/ eager", "p50 / p90 ms", "batch",
)  # fmt: skip


def show(report: Report, folder: Path, *, verbose: bool, quiet: bool) -> None:
    """Print the tables, the findings, and last the verdict, the folder and the next command."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(stderr=True, highlight=False, width=WIDTH_ELSEWHERE)
    if not quiet:
        tables = (
            artifact_table(report),
            task_table(report),
            against_table(report),
            latency_table(report, dynamic_only=not verbose),
            crossover_table(report),
            family_table(report),
            cost_table(report),
        )
        for table in tables:
            if table is not None:
                shown, dropped = fitting(table, console.width)
                console.print(draw(shown))
                more = f"; too narrow for: {', '.join(dropped)} (--json has all)" if dropped else ""
                console.print(f"[dim]{table.note}{more}[/dim]\n")
        for line in left_out(report):
            console.print(f"not used: {line}", markup=False, soft_wrap=True)
    _show_findings(report, console.print, notes=not quiet)
    style = _STYLES.get(report.verdict, "red")
    console.print(
        f"[bold {style}]{report.verdict}[/bold {style}]  {summary(report)}, {report.seconds:.0f} s"
    )
    console.print(f"folder   {folder}", markup=False, soft_wrap=True)
    command = f"linattn-check {shlex.quote(str(folder))}"
    console.print(f"check    {command}", markup=False, soft_wrap=True)


def fitting(table: Table, width: int) -> tuple[Table, list[str]]:
    """The table without the columns for which the terminal is too narrow, and their headings.

    Half a number is worse than none, so columns go whole, the least important first.
    """
    dropped: list[str] = []
    kept = list(range(len(table.headings)))
    for heading in _DISPENSABLE:
        if sum(_column_width(table, index) for index in kept) <= width:
            break
        if heading in table.headings:
            kept.remove(table.headings.index(heading))
            dropped.append(heading)
    shown = Table(
        title=table.title,
        headings=tuple(table.headings[index] for index in kept),
        rows=[tuple(row[index] for index in kept) for row in table.rows],
        note=table.note,
    )
    return shown, dropped


def _column_width(table: Table, index: int) -> int:
    cells = [table.headings[index], *(row[index] for row in table.rows)]
    return max(len(cell) for cell in cells) + 3  # what rich puts between two columns


def draw(table: Table) -> object:
    """The table as rich prints it."""
    from rich import box
    from rich.table import Table as RichTable

    drawn = RichTable(title=table.title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, heading in enumerate(table.headings):
        text = index == 0 or heading in _TEXT
        drawn.add_column(heading, justify="left" if text else "right", no_wrap=True)
    for row in table.rows:
        cells = [_coloured(cell) for cell in row]
        drawn.add_row(*cells)
    return drawn


def _coloured(cell: str) -> str:
    names = {code.name for code in ExitCode} | {"NOT JUDGED"}
    if cell not in names:
        return cell
    style = _STYLES.get(cell, "bold red")
    return f"[{style}]{cell}[/{style}]"


def _show_findings(report: Report, show_line: object, *, notes: bool) -> None:
    assert callable(show_line)
    everything = report.all_findings()
    findings = [finding for finding in everything if finding.exit_code is not ExitCode.PASS]
    noted: dict[Code, list[str]] = {}
    for finding in everything:
        if finding.exit_code is ExitCode.PASS:
            noted.setdefault(finding.code, []).append(finding.message)
    # The table and the last line say it of every artifact.
    findings = [finding for finding in findings if finding.code is not Code.NOT_JUDGED]
    for finding in findings[:_SHOWN_FINDINGS]:
        show_line(f"{finding.code}: {finding.message}", markup=False, soft_wrap=True)
    if len(findings) > _SHOWN_FINDINGS:
        show_line(f"... and {len(findings) - _SHOWN_FINDINGS} more findings; --json prints all")
    lines = blame_lines(report)
    for line in lines[:_SHOWN_FINDINGS]:
        show_line(line, markup=False, soft_wrap=True)
    for code, messages in sorted(noted.items()) if notes else ():
        more = f" (and {len(messages) - 1} more; --json prints all)" if messages[1:] else ""
        show_line(f"note, fails nothing: {code}: {messages[0]}{more}", markup=False, soft_wrap=True)
