"""The outcome of a self-test on a terminal, on stderr."""

import shlex
from pathlib import Path

from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.faults.graphs import GRAPH_FAULTS
from linattn_runtime_checks.faults.sessions import SESSION_FAULTS
from linattn_runtime_checks.judging.selftest import Planted, SelfTest
from linattn_runtime_checks.report.table import Table

_SHOWN = 20


def fault_table(found: SelfTest) -> Table:
    """Per fault: in how many artifacts it was planted, in how many rejected, and by which codes."""
    titles = {name: fault.title for name, fault in GRAPH_FAULTS.items()}
    titles |= {name: fault.title for name, fault in SESSION_FAULTS.items()}
    rows = []
    for name, title in titles.items():
        planted = [each for each in found.planted if each.fault == name]
        if not planted:
            rows.append((name, title, "no place here", "-", "-"))
            continue
        rejected = sum(each.rejected for each in planted)
        rows.append((name, title, str(len(planted)), str(rejected), _seen_by(planted)))
    return Table(
        title="Planted faults",
        headings=("fault", "what", "planted", "rejected", "mostly seen as"),
        rows=rows,
        note="rejected: at every length at which the fault changes the mathematics; no place here: "
        "no artifact of the folder has what the fault damages",
    )


def smallest_table(found: SelfTest) -> Table:
    """Per artifact: the smallest relative change of one weight that is rejected everywhere."""
    rows = [
        (
            each.artifact,
            "none of those tried"
            if each.relative_change is None
            else f"{each.relative_change:.0e}",
        )
        for each in found.smallest
    ]
    return Table(
        title="Smallest change of one element of a weight that is rejected at every length",
        headings=("artifact", "relative change"),
        rows=rows,
        note="the largest element in the first row of the last square matrix, or of Linformer's E: "
        "one element moves the output the less, the more features there are beside it",
    )


def show(found: SelfTest, folder: Path, *, quiet: bool) -> None:
    """Print the tables, what was missed, and last the verdict."""
    from rich.console import Console

    from linattn_runtime_checks.report.terminal import WIDTH_ELSEWHERE, draw

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=True, highlight=False, width=WIDTH_ELSEWHERE)
    if not quiet:
        for table in (fault_table(found), smallest_table(found)):
            console.print(draw(table))
            console.print(f"[dim]{table.note}[/dim]\n")
    missed = [each for each in found.planted if not each.rejected]
    for each in missed[:_SHOWN]:
        lengths = ", ".join(map(str, each.missed)) if each.lengths else "none was run"
        console.print(
            f"missed: {each.fault} in {each.artifact} on {each.runtime} at lengths {lengths}",
            markup=False,
            soft_wrap=True,
        )
    for line in found.false_alarms:
        console.print(f"false alarm: the unchanged copy of {line}", markup=False, soft_wrap=True)
    kinds = len({each.fault for each in found.planted})
    passed = found.exit_code is ExitCode.PASS
    style = "green" if passed else "red"
    console.print(
        f"[bold {style}]{'PASS' if passed else 'THE GATE IS BLIND'}[/bold {style}]  "
        f"{len(found.planted) - len(missed)} of {len(found.planted)} planted faults of {kinds} "
        f"kinds rejected, {len(found.false_alarms)} false alarms, {found.seconds:.0f} s"
    )
    command = f"linattn-check {shlex.quote(str(folder))} --self-test"
    console.print(f"again    {command}", markup=False, soft_wrap=True)


def _seen_by(planted: list[Planted]) -> str:
    """The code that most of them have, with a plus where there are others."""
    counts: dict[str, int] = {}
    for each in planted:
        for code in each.codes:
            counts[code] = counts.get(code, 0) + 1
    counts.pop("precision_lost", None)
    if not counts:
        return "-"
    first = max(counts, key=lambda code: counts[code])
    return first + (" +" if len(counts) > 1 else "")
