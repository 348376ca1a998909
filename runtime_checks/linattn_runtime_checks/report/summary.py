"""The report as a comment on a pull request, or a step summary of GitHub Actions."""

import re
from collections.abc import Iterable, Sequence

from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode, gravest
from linattn_runtime_checks.report.blame import blame_lines
from linattn_runtime_checks.report.families import cases_by_family, family_cell
from linattn_runtime_checks.report.scores import score_cells, score_headings
from linattn_runtime_checks.report.tables import left_out
from linattn_runtime_checks.report.tables import summary as one_line
from linattn_runtime_checks.results.report import ArtifactResult, Finding, Report

MOST_CHARACTERS = 60_000
"""GitHub takes 65,536 characters; the rest is for whatever is put around the summary."""
_FINDINGS = 20
_BLAMED = 10
_MESSAGE = 600
_CELL = 300
_FAMILIES = 6
_ENVIRONMENT = 8_000
_NAMES = 200
_ELSEWHERE = "`linattn-check DIR --json` prints all"


def render(report: Report) -> str:
    """The verdict first, then findings and one line for each method; never too long to post."""
    head = [f"## linattn: {report.verdict}", _counts(report)]
    head += _findings(report)
    unused = [_text(line, _CELL) for line in left_out(report)[:_FINDINGS]]
    if unused:
        head.append("Not used here:\n\n" + "\n".join(f"- {line}" for line in unused))
    tail = _environment(report)
    used = sum(len(part) + 2 for part in (*head, tail))
    return "\n\n".join([*head, *_methods(report, MOST_CHARACTERS - used), tail]) + "\n"


def _counts(report: Report) -> str:
    cases = sum(len(r.cases) for artifact in report.artifacts for r in artifact.runtimes)
    runtimes = _text(", ".join(report.runtimes), _NAMES) or "no runtime"
    return (
        f"{one_line(report)}; {cases:,} cases on {runtimes}; {report.seconds:.0f} s; "
        f"exit code {int(report.exit_code)}."
    )


def _findings(report: Report) -> list[str]:
    # What no runtime here can run is a finding only where nothing else decided the verdict.
    fails_nothing = set() if report.exit_code is ExitCode.UNVERIFIED else {Code.NOT_JUDGED}
    wrong: list[Finding] = []
    notes: list[Finding] = []
    for finding in report.all_findings():
        note = finding.exit_code is ExitCode.PASS or finding.code in fails_nothing
        (notes if note else wrong).append(finding)
    parts = []
    if wrong:
        title = "finding" if len(wrong) == 1 else "findings"
        parts += [f"### {len(wrong):,} {title}", "\n".join(_lines(wrong[:_FINDINGS]))]
    if len(wrong) > _FINDINGS:
        parts.append(f"{len(wrong) - _FINDINGS:,} more findings are left out here; {_ELSEWHERE}.")
    blamed = [_text(line, _MESSAGE) for line in blame_lines(report)]
    if blamed:
        parts.append("Blame:\n\n" + "\n".join(f"- {line}" for line in blamed[:_BLAMED]))
    if len(blamed) > _BLAMED:
        parts.append(f"{len(blamed) - _BLAMED:,} more are left out here; {_ELSEWHERE}.")
    if notes:
        codes = ", ".join(f"`{code}`" for code in dict.fromkeys(f.code for f in notes))
        parts.append(f"Not proven, and failing nothing: {len(notes):,} ({codes}); {_ELSEWHERE}.")
    return parts


def _lines(findings: Iterable[Finding]) -> Iterable[str]:
    """One line for each finding, and the fix below the first of each code."""
    told: set[Code] = set()
    for finding in findings:
        yield f"- `{finding.code}` {_text(finding.message, _MESSAGE)}"
        if finding.code not in told:
            told.add(finding.code)
            yield f"  - fix: {CODES[finding.code].fix}"


def _methods(report: Report, room: int) -> list[str]:
    """The table of the methods, with as many rows as there is room for."""
    by_method: dict[str, list[ArtifactResult]] = {}
    for artifact in report.artifacts:
        by_method.setdefault(f"{artifact.model}/{artifact.method}", []).append(artifact)
    if not by_method:
        return []
    problems = _family_problems(report)
    scores = score_headings(report.artifacts)
    headings = (
        "method", "verdict", *scores, "pass", "worst", "verified lengths", "families with problems",
    )  # fmt: skip
    lines = [_row(headings), "|" + " --- |" * len(headings)]
    note = (
        "Worst: the largest error as a multiple of what rounding costs on that input; at most 4 "
        "passes."
    )
    room -= sum(len(line) + 1 for line in lines) + len(note) + _CELL
    for number, (method, artifacts) in enumerate(by_method.items()):
        scored = score_cells(*artifacts) if scores else ()
        line = _row(_method_cells(method, scored, artifacts, problems.get(method, [])))
        room -= len(line) + 1
        if room < 0:
            rest = len(by_method) - number
            cut = f"{rest:,} more methods are left out here; {_ELSEWHERE}."
            return ["\n".join(lines), note, cut]
        lines.append(line)
    return ["\n".join(lines), note]


def _method_cells(
    method: str,
    scored: tuple[str, ...],
    artifacts: Sequence[ArtifactResult],
    problems: Sequence[str],
) -> tuple[str, ...]:
    passed = [artifact for artifact in artifacts if artifact.exit_code is ExitCode.PASS]
    multiples = [artifact.multiple for artifact in artifacts if artifact.multiple is not None]
    ends = [a.verified_sequence for a in artifacts if a.verified_sequence is not None]
    # A runtime may have found something without a single case: a file that does not load.
    codes = [
        a.exit_code
        for a in artifacts
        if a.runtimes or any(finding.code is not Code.NOT_JUDGED for finding in a.findings)
    ]
    shown = list(problems[:_FAMILIES])
    if len(problems) > _FAMILIES:
        shown.append(f"{len(problems) - _FAMILIES} more")
    return (
        method,
        gravest(codes).name if codes else "NOT JUDGED",
        *scored,
        f"{len(passed)} of {len(artifacts)}",
        f"{max(multiples):.2f}x" if multiples else "-",
        f"{min(low for low, _ in ends)}..{max(high for _, high in ends)}" if ends else "-",
        ", ".join(shown) or "-",
    )


def _family_problems(report: Report) -> dict[str, list[str]]:
    """Per method, the families that failed or were lost, with what the family table says."""
    found: dict[str, list[str]] = {}
    for (method, family), cases in cases_by_family(report).items():
        if any(case.code is not Code.PASS for case in cases):
            found.setdefault(method, []).append(f"{family} ({family_cell(cases)})")
    return found


def _environment(report: Report) -> str:
    lines = ["<details><summary>Environment</summary>", "", "| what | value |", "| --- | --- |"]
    room = _ENVIRONMENT
    for name, value in report.environment.items():
        line = _row((name, str(value)))
        room -= len(line)
        if room < 0:
            lines += ["", f"The rest is left out here; {_ELSEWHERE}."]
            break
        lines.append(line)
    return "\n".join([*lines, "", "</details>"])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_text(cell, _CELL).replace("|", "\\|") for cell in cells) + " |"


def _text(text: str, most: int) -> str:
    """``text`` on one line, no longer than ``most``, without tags."""
    words = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    if len(words) <= most:
        return words
    return re.sub("&[a-z]*$", "", words[: most - 4]) + " ..."
