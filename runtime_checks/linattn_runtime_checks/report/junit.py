"""JUnit XML: one test suite for each artifact and runtime, one test case for each check.

    failure   the numbers, shapes or axes differ, or what had to be judged could not be
    error     a file is damaged or does not load, or the runtime is not what was asked for
    skipped   nothing was proven, and the verdict does not ask for it

Something is red in the file exactly when the exit code of the report is not 0.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree as ET

from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.checks.files import FILES
from linattn_runtime_checks.checks.judged import JUDGED
from linattn_runtime_checks.checks.process import PROCESS
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.results.report import (
    ArtifactResult,
    CaseResult,
    Finding,
    Report,
    RuntimeResult,
)
from linattn_runtime_checks.runtimes import RUNTIMES

OTHER = "other"
"""The test case of findings that name no check, as in older reports."""
# XML 1.0 forbids these even as character references.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Kind = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one check."""

    name: str
    code: Code
    message: str = ""

    excused: bool = False
    """Not judged, where the verdict does not ask for it."""

    @property
    def kind(self) -> Kind:
        """The element of the test case; codes that exit with 0 prove nothing: skipped."""
        if self.code is Code.PASS:
            return "passed"
        exit_code = CODES[self.code].exit_code
        if exit_code is ExitCode.PASS or self.excused:
            return "skipped"
        return "error" if exit_code in (ExitCode.EXPORT, ExitCode.ENVIRONMENT) else "failure"

    @property
    def red(self) -> bool:
        """Whether it lets the whole fail."""
        return self.kind in ("failure", "error")


def case_name(case: str, mode: str) -> str:
    """The name of the test case for one input in one mode of the runtime."""
    return f"{case}[{mode}]"


def outcomes(result: RuntimeResult) -> list[Outcome]:
    """Every check of one artifact on one runtime, in the order of the table.

    A check that had its turn passed, or has an outcome for each of its findings; one that compares
    case by case has an outcome for each case instead.
    """
    done = {check.name for check in result.checks}
    if not any(finding.check == PROCESS.name for finding in result.findings):
        done.add(PROCESS.name)
    in_cases = {case.code for case in result.cases}
    found: list[Outcome] = []
    for check in CHECKS.values():
        findings = [finding for finding in result.findings if finding.check == check.name]
        if check.by_case:
            found += [_gravest(of) for of in _by_name(result.cases).values()]
            findings = [finding for finding in findings if finding.code not in in_cases]
        elif not findings and check.name in done:
            found.append(Outcome(name=check.name, code=Code.PASS))
        found += [placed(finding) for finding in findings]
    return found + [placed(f) for f in result.findings if f.check not in CHECKS]


def placed(finding: Finding) -> Outcome:
    """The outcome of the check that made ``finding``."""
    name = finding.check if finding.check in CHECKS else OTHER
    return Outcome(name=name, code=finding.code, message=finding.message)


def render(report: Report) -> str:
    """The whole report as JUnit XML."""
    suites: list[tuple[str, Sequence[Outcome]]] = []
    for artifact in report.artifacts:
        suites += _suites(report, artifact)
    folder = [placed(finding) for finding in (*report.findings, *report.against.findings)]
    if not any(outcome.name == FILES.name for outcome in folder):
        folder.insert(0, Outcome(name=FILES.name, code=Code.PASS))
    everything = [*folder, *(outcome for _, found in suites for outcome in found)]
    folder.append(_verdict(report, everything))
    return _xml([("folder", folder), *suites])


def _suites(report: Report, artifact: ArtifactResult) -> Iterator[tuple[str, list[Outcome]]]:
    """The suites of one artifact; one of its own for what is not of a single runtime."""
    # What no runtime here can run fails nothing, unless that is all there is: see _verdict.
    excused = set() if artifact.judged else {Code.NOT_JUDGED}
    own = [placed(finding) for finding in artifact.findings if finding.code not in excused]
    if not artifact.judged and not any(result.findings for result in artifact.runtimes):
        message = f"{artifact.id}: {why_not_judged(report, artifact)}"
        own.append(Outcome(name=JUDGED.name, code=Code.NOT_JUDGED, message=message, excused=True))
    if own:
        yield artifact.id, own
    for result in artifact.runtimes:
        yield f"{artifact.id} on {result.runtime}", outcomes(result)


def _verdict(report: Report, found: Iterable[Outcome]) -> Outcome:
    """Red where the report does not pass and no single check says why."""
    code = report.exit_code
    if code is ExitCode.PASS or any(outcome.red for outcome in found):
        return Outcome(name="verdict", code=Code.PASS)
    message = f"{report.verdict} (exit code {int(code)}): no artifact of the folder was compared"
    if any(artifact.judged for artifact in report.artifacts):
        message = f"{report.verdict} (exit code {int(code)}): see the checks that were skipped"
    return Outcome(name="verdict", code=Code.NOT_JUDGED, message=message)


def why_not_judged(report: Report, artifact: ArtifactResult) -> str:
    """Why no runtime compared ``artifact``."""
    if artifact.runtimes:
        return "no case of its golden pack has sizes that it declares"
    takers = [name for name, runtime in RUNTIMES.items() if artifact.format in runtime.formats]
    if set(takers) & set(report.runtimes):
        return "not loaded, for it or its golden pack is damaged"
    reasons = [f"{name}: {report.left_out[name]}" for name in takers if name in report.left_out]
    return "; ".join(reasons) or f"no runtime was asked to run {artifact.format}"


def _by_name(cases: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    """A case that has several outputs has a result for each."""
    found: dict[str, list[CaseResult]] = {}
    for case in cases:
        found.setdefault(case_name(case.case, case.mode), []).append(case)
    return found


def _gravest(cases: Sequence[CaseResult]) -> Outcome:
    every = [Outcome(name=case_name(c.case, c.mode), code=c.code, message=c.message) for c in cases]
    return max(every, key=lambda o: ("passed", "skipped", "failure", "error").index(o.kind))


def _xml(suites: Sequence[tuple[str, Sequence[Outcome]]]) -> str:
    every = [outcome for _, found in suites for outcome in found]
    root = ET.Element("testsuites", {"name": "linattn-check", **_counts(every)})
    for name, found in suites:
        skipped = str(sum(outcome.kind == "skipped" for outcome in found))
        attributes = {"name": _clean(name), **_counts(found), "skipped": skipped}
        suite = ET.SubElement(root, "testsuite", attributes)
        classname = "linattn." + _clean(name).replace(" on ", ".").replace("/", ".")
        for outcome in found:
            case = ET.SubElement(
                suite, "testcase", {"name": _clean(outcome.name), "classname": classname}
            )
            if outcome.kind != "passed":
                message = _clean(outcome.message)
                told = {"type": str(outcome.code), "message": message}
                info = CODES[outcome.code]
                ET.SubElement(
                    case, outcome.kind, told
                ).text = f"{outcome.code}: {message}\n{info.meaning}\nfix: {info.fix}"
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _counts(found: Sequence[Outcome]) -> dict[str, str]:
    kinds = [outcome.kind for outcome in found]
    return {
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
    }


def _clean(text: str) -> str:
    """``text`` with what XML forbids as Python escapes it."""
    return _FORBIDDEN.sub(lambda found: ascii(found.group())[1:-1], text)
