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

from linattn_runtime_checks.codes import CODES, Code
from linattn_runtime_checks.errors import ExitCode
from linattn_runtime_checks.report.model import (
    ArtifactResult,
    CaseResult,
    Finding,
    Report,
    RuntimeResult,
)
from linattn_runtime_checks.runtimes import RUNTIMES

FILES, PROCESS, LOADING, SIGNATURE = "files", "process", "loading", "signature"
AXES, RANGE, REFUSAL, TASK, OTHER = "axes", "range", "refusal", "task", "other"
BASELINE = "baseline"

_PLACES: dict[Code, str] = {
    Code.FILE_DAMAGED: FILES,
    Code.LOAD_FAILED: LOADING,
    Code.PROVIDER_FALLBACK: LOADING,
    Code.RUNTIME_CRASHED: PROCESS,
    Code.RUNTIME_HUNG: PROCESS,
    Code.OUT_OF_MEMORY: PROCESS,
    Code.INPUTS_DIFFER: SIGNATURE,
    Code.OUTPUTS_DIFFER: SIGNATURE,
    Code.DTYPE_MISMATCH: SIGNATURE,
    Code.SHAPE_MISMATCH: SIGNATURE,
    Code.AXIS_BECAME_STATIC: SIGNATURE,
    Code.AXIS_RENAMED: SIGNATURE,
    Code.AXIS_NOT_FIXED: SIGNATURE,
    Code.AXIS_FROZEN_INSIDE: AXES,
    Code.AXIS_UNVERIFIED_RANGE: RANGE,
    Code.LENGTH_NOT_REFUSED: REFUSAL,
    Code.REFUSAL_UNVERIFIED: REFUSAL,
    Code.METRIC_FELL: TASK,
    Code.LABELS_DIFFER: SIGNATURE,
    Code.SIZE_GREW: BASELINE,
    Code.LATENCY_GREW: BASELINE,
    Code.ARTIFACT_GONE: BASELINE,
    Code.BASELINE_INCOMPARABLE: BASELINE,
}
DECLARE_NOTHING = ("torchscript",)
"""Runtimes whose files declare no shapes: they have no signature to pass."""
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


def outcomes(result: RuntimeResult, *, fixed: bool) -> list[Outcome]:
    """Every check of one artifact on one runtime, each once.

    Args:
        result: of the runtime.
        fixed: the artifact must refuse other lengths.
    """
    cases = [_gravest(of) for of in _by_name(result.cases).values()]
    checks = [Outcome(name=c.name, code=c.code, message=c.message) for c in result.checks]
    told = [placed(finding) for finding in result.findings if not _is_told(finding, result)]
    red = {outcome.name for outcome in told}
    ran, to_the_end = bool(cases), not red & {LOADING, PROCESS}
    applies = {
        PROCESS: True,
        LOADING: PROCESS not in red,
        SIGNATURE: ran and result.runtime not in DECLARE_NOTHING,
        AXES: ran and to_the_end,
        REFUSAL: ran and to_the_end and fixed,
        TASK: result.task is not None,
    }
    passed = [
        Outcome(name=name, code=Code.PASS) for name in applies if applies[name] and name not in red
    ]
    return [*passed, *told, *cases, *checks]


def placed(finding: Finding) -> Outcome:
    """The outcome of the check that ``finding`` is about."""
    held_out = finding.code is Code.RUN_FAILED and "held-out data" in finding.message
    name = TASK if held_out else _PLACES.get(finding.code, OTHER)
    return Outcome(name=name, code=finding.code, message=finding.message)


def render(report: Report) -> str:
    """The whole report as JUnit XML."""
    suites: list[tuple[str, Sequence[Outcome]]] = []
    for artifact in report.artifacts:
        suites += _suites(report, artifact)
    folder = [placed(finding) for finding in (*report.findings, *report.against.findings)]
    if not any(outcome.name == FILES for outcome in folder):
        folder.insert(0, Outcome(name=FILES, code=Code.PASS))
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
        own.append(Outcome(name="judged", code=Code.NOT_JUDGED, message=message, excused=True))
    if own:
        yield artifact.id, own
    fixed = artifact.declared_sequence[0] == artifact.declared_sequence[1]
    for result in artifact.runtimes:
        yield f"{artifact.id} on {result.runtime}", outcomes(result, fixed=fixed)


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


def _is_told(finding: Finding, result: RuntimeResult) -> bool:
    """Whether ``finding`` sums up cases or a check, which have test cases of their own."""
    return any(
        case.code is finding.code and f"worst {case.case}: {case.message}" in finding.message
        for case in result.cases
    ) or any(
        check.code is finding.code and f"{check.name}: {check.message}" in finding.message
        for check in result.checks
    )


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
