"""The top of the page: the verdict, the counts, and the findings in groups that stay short."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.verdict import K
from linattn_runtime_checks.report.blame import blame_lines
from linattn_runtime_checks.report.html.values import sentence, short, worst
from linattn_runtime_checks.report.junit import why_not_judged
from linattn_runtime_checks.report.tables import summary
from linattn_runtime_checks.results.report import Finding, Report

State = Literal["good", "bad", "unsure", "info"]

SHOWN = 3
"""Messages of one group that are seen without opening it."""

_MEANINGS = {
    ExitCode.PASS: "All that was asked for is there and agrees with float64.",
    ExitCode.PARITY: "Numbers, shapes or axes differ from what is promised.",
    ExitCode.USAGE: "A flag, name or file cannot be used.",
    ExitCode.EXPORT: "An artifact cannot be produced or loaded.",
    ExitCode.ENVIRONMENT: "A runtime, provider, package or version that was asked for is missing.",
    ExitCode.UNVERIFIED: "Artifacts are there that nothing was compared with.",
    ExitCode.REGRESSION: "Size or latency is worse than the baseline allows.",
    ExitCode.INTERNAL: "The checks themselves failed.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Lines that share a heading; the first few are always seen, the rest on demand."""

    title: str
    state: State
    told: str
    lines: list[str]

    @property
    def first(self) -> list[str]:
        """What is always seen."""
        return self.lines[:SHOWN]

    @property
    def rest(self) -> list[str]:
        """What is seen on demand."""
        return self.lines[SHOWN:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The verdict in a word, a shape and a sentence, and the counts beside it."""

    word: str
    state: State
    meaning: str
    summary: str
    counts: list[tuple[str, str]]


def state_of(code: ExitCode) -> State:
    """Whether ``code`` is good news, bad news, or says that nothing is known."""
    if code is ExitCode.PASS:
        return "good"
    return "unsure" if code is ExitCode.UNVERIFIED else "bad"


def headline(report: Report) -> Headline:
    """The verdict of ``report``."""
    judged = [artifact for artifact in report.artifacts if artifact.judged]
    passed = sum(artifact.exit_code is ExitCode.PASS for artifact in judged)
    red = sum(state_of(artifact.exit_code) == "bad" for artifact in report.artifacts)
    results = [result for artifact in report.artifacts for result in artifact.runtimes]
    cases = [case for result in results for case in result.cases]
    multiple = worst(case.multiple for case in cases)
    counts = [
        ("artifacts", str(len(report.artifacts))),
        ("pass", str(passed)),
        ("fail", str(red)),
        ("not judged", str(len(report.artifacts) - len(judged))),
        ("comparisons with float64", f"{len(cases):,}"),
        ("other checks", f"{sum(len(result.checks) for result in results):,}"),
        (f"largest error, x rounding (at most {K:g})",
         "-" if multiple is None else short(multiple)),
        ("runtimes", ", ".join(report.runtimes) or "none"),
        ("time", f"{report.seconds:.0f} s"),
    ]  # fmt: skip
    return Headline(
        word=report.verdict,
        state=state_of(report.exit_code),
        meaning=_meaning(report.exit_code, everything=len(judged) == len(report.artifacts)),
        summary=f"{summary(report)}.",
        counts=counts,
    )


def _meaning(code: ExitCode, *, everything: bool) -> str:
    if code is ExitCode.PASS and not everything:
        return "All that was compared here agrees with float64."
    return _MEANINGS[code]


def finding_groups(report: Report) -> list[Group]:
    """Findings by code, the gravest first, with who is to blame after those that fail."""
    # Of an artifact that no runtime took, the section on what was not used says why.
    found = [
        finding
        for finding in report.all_findings()
        if finding.code is not Code.NOT_JUDGED and finding.exit_code is not ExitCode.PASS
    ]
    groups = sorted(_by_code(found), key=lambda group: group.state != "bad")
    if blamed := blame_lines(report):
        told = "The first step of the export whose numbers depart, and where it can be seen again."
        failing = sum(group.state == "bad" for group in groups)
        groups.insert(failing, Group(title="blame", state="bad", told=told, lines=blamed))
    return groups


def note_groups(report: Report) -> list[Group]:
    """What was noted and fails nothing."""
    return _by_code(f for f in report.all_findings() if f.exit_code is ExitCode.PASS)


def _by_code(findings: Iterable[Finding]) -> list[Group]:
    by_code: dict[tuple[Code, ExitCode], list[str]] = {}
    for finding in findings:
        by_code.setdefault((finding.code, finding.exit_code), []).append(finding.message)
    return [
        Group(
            title=code.value,
            state="info" if exit_code is ExitCode.PASS else state_of(exit_code),
            told=sentence(f"{CODES[code].meaning}. What to do: {CODES[code].fix}"),
            lines=lines,
        )
        for (code, exit_code), lines in by_code.items()
    ]


def unused_groups(report: Report) -> list[Group]:
    """What was not used: runtimes, then artifacts that nothing was compared with, by reason."""
    groups = []
    if report.not_made:
        lines = [f"{name}: {reason}" for name, reason in report.not_made.items()]
        groups.append(Group(title="could not be made", state="unsure", told="", lines=lines))
    if report.left_out:
        lines = [f"{name}: {reason}" for name, reason in report.left_out.items()]
        groups.append(Group(title="runtimes left out", state="unsure", told="", lines=lines))
    reasons: dict[str, list[str]] = {}
    for artifact in report.artifacts:
        if not artifact.judged:
            reasons.setdefault(why_not_judged(report, artifact), []).append(artifact.id)
    for reason, names in reasons.items():
        groups.append(Group(title="artifacts not judged", state="unsure", told=reason, lines=names))
    return groups
