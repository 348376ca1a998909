"""The JUnit file: what is red in it is what fails the run, and any reader of the format takes it.

The shape is that of Jenkins' ``junit-10.xsd``.
"""

import itertools
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from artifact_reports import artifact, case, report
from folders import DYNAMIC, FIXED, alter, change_weight, flip
from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.judging.folder import CheckRequest, check_folder
from linattn_runtime_checks.report.junit import outcomes, render
from linattn_runtime_checks.results.report import (
    CheckResult,
    Finding,
    Report,
    RuntimeResult,
    TaskResult,
)

ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "testcase": {"name", "classname"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped"},
}
OWNERS = {code: check.name for check in CHECKS.values() for code in check.codes}
ERRORS = (ExitCode.EXPORT, ExitCode.ENVIRONMENT)


def parsed(report: Report) -> ET.Element:
    """The file, after what holds of every file."""
    root = ET.fromstring(render(report))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert element.attrib.keys() == ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for suite in root:
        counted = Counter(child.tag for case in suite for child in case)
        assert all(len(case) <= 1 for case in suite)
        assert int(suite.attrib["tests"]) == len(suite)
        assert int(suite.attrib["failures"]) == counted["failure"]
        assert int(suite.attrib["errors"]) == counted["error"]
        assert int(suite.attrib["skipped"]) == counted["skipped"]
    for name in ("tests", "failures", "errors"):
        assert int(root.attrib[name]) == sum(int(suite.attrib[name]) for suite in root)
    names = [suite.attrib["name"] for suite in root]
    assert len(names) == len(set(names))
    red = int(root.attrib["failures"]) + int(root.attrib["errors"])
    assert (red > 0) is (report.exit_code is not ExitCode.PASS)
    return root


def suite(root: ET.Element, name: str) -> dict[str, ET.Element]:
    """The test cases of one suite by name."""
    (found,) = [suite for suite in root if suite.attrib["name"] == name]
    return {case.attrib["name"]: case for case in found}


def verdicts(root: ET.Element) -> dict[str, str]:
    """Type by name of every test case that did not pass."""
    return {
        case.attrib["name"]: f"{case[0].tag} {case[0].attrib['type']}"
        for case in root.iter("testcase")
        if len(case)
    }


def checked(folder: Path, *runtimes: str) -> Report:
    request = CheckRequest(runtimes=runtimes or ("ort-cpu",), latency=False, quiet=True)
    return check_folder(folder, read(folder), request)


# Real reports


def test_a_folder_that_passes(small_folder: Path) -> None:
    found = checked(small_folder)
    assert found.exit_code is ExitCode.PASS
    root = parsed(found)
    dynamic = suite(root, f"{DYNAMIC} on ort-cpu")
    (result,) = next(a for a in found.artifacts if a.id == DYNAMIC).runtimes
    assert {f"{c.case}[{c.mode}]" for c in result.cases} <= dynamic.keys()
    assert {c.name for c in result.checks if not CHECKS[c.name].by_case} <= dynamic.keys()
    assert {"process", "loading", "signature", "axes"} <= dynamic.keys()
    assert "refusal" not in dynamic
    assert "refusal" in suite(root, f"{FIXED} on ort-cpu")
    skipped = suite(root, "layer/elu/pt2/dynamic")["judged"][0]
    assert (skipped.tag, skipped.attrib["type"]) == ("skipped", "not_judged")
    assert "pt2: not asked for" in skipped.attrib["message"]
    proven = {"skipped not_judged", "skipped precision_lost", "skipped cost_unknown"}
    assert set(verdicts(root).values()) <= proven


def test_wrong_numbers_are_failures_each_once(folder_copy: Path) -> None:
    alter(folder_copy, DYNAMIC, change_weight(lambda largest: largest / 1000))
    found = checked(folder_copy)
    root = parsed(found)
    (result,) = found.artifacts[0].runtimes
    wrong = {f"{c.case}[{c.mode}]" for c in result.cases if c.code is Code.PARITY_EXCEEDED}
    assert wrong
    red = {name for name, told in verdicts(root).items() if told == "failure parity_exceeded"}
    assert red == wrong
    message = suite(root, f"{DYNAMIC} on ort-cpu")[min(wrong)][0].attrib["message"]
    assert "x the rounding of this input" in message


def test_a_damaged_file_is_an_error_of_the_folder(folder_copy: Path) -> None:
    flip(folder_copy / DYNAMIC / "model.onnx")
    root = parsed(checked(folder_copy))
    assert suite(root, "folder")["files"][0].tag == "error"
    assert verdicts(root)["files"] == "error file_damaged"
    skipped = suite(root, DYNAMIC)["judged"][0]
    assert skipped.tag == "skipped"
    assert "is damaged" in skipped.attrib["message"]


# What reports can hold


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.PASS])
@pytest.mark.parametrize("where", ["case", "check", "runtime", "artifact", "folder"])
def test_every_code_wherever_it_is_found(code: Code, where: str) -> None:
    check = {"case": "parity", "check": "alone"}.get(where, OWNERS[code])
    finding = Finding.of(code, f"where: what {code} says", check=check)
    result = RuntimeResult(runtime="ort-cpu", cases=[case()])
    one = artifact(result)
    if where == "case":
        result.cases.append(case(code, f"what {code} says", case="x"))
        finding.message = f"where (optimizer-on): 1 of 2 cases; worst x: what {code} says"
        result.findings.append(finding)
    elif where == "check":
        result.checks = [CheckResult(name="alone", code=code, message=f"what {code} says")]
        finding.message = f"where: alone: what {code} says"
        result.findings.append(finding)
    elif where == "runtime":
        result.findings.append(finding)
    elif where == "artifact":
        one.findings.append(finding)
    root = parsed(report(one, findings=(finding,) if where == "folder" else ()))
    exit_code = CODES[code].exit_code
    kind = (
        "skipped" if exit_code is ExitCode.PASS else "error" if exit_code in ERRORS else "failure"
    )
    assert list(verdicts(root).values()) == [f"{kind} {code}"], "once, not once for each place"
    (told,) = [case[0] for case in root.iter("testcase") if len(case)]
    assert f"what {code} says" in told.attrib["message"]
    assert told.text is not None
    assert CODES[code].fix in told.text


def test_all_codes_at_once() -> None:
    codes = [code for code in Code if code is not Code.PASS]
    result = RuntimeResult(runtime="ort-cpu", cases=[case()])
    result.findings = [Finding.of(code, f"what {code} says", check=OWNERS[code]) for code in codes]
    root = parsed(report(artifact(result)))
    told = [case[0].attrib["type"] for case in root.iter("testcase") if len(case)]
    assert sorted(told) == sorted(codes)


def test_what_names_no_check_is_told_all_the_same() -> None:
    older = Finding.model_validate({"code": "padding_leaks", "message": "x", "exit_code": 1})
    found = outcomes(RuntimeResult(runtime="ort-cpu", cases=[case()], findings=[older]))
    assert [(o.name, o.kind) for o in found if o.red] == [("other", "failure")]


def test_what_did_not_take_place_did_not_pass() -> None:
    crashed = Finding.of(
        Code.RUNTIME_CRASHED, "the process died of SIGSEGV at loading", check="process"
    )
    found = outcomes(RuntimeResult(runtime="ort-cpu", findings=[crashed]))
    assert [(outcome.name, outcome.kind) for outcome in found] == [("process", "error")]
    failed = Finding.of(Code.LOAD_FAILED, "cannot load", check="loading")
    found = outcomes(RuntimeResult(runtime="ort-cpu", findings=[failed]))
    assert [(o.name, o.kind) for o in found] == [("process", "passed"), ("loading", "error")]
    found = outcomes(RuntimeResult(runtime="torchscript", cases=[case()]))
    assert "signature" not in {outcome.name for outcome in found}, "its files declare none"


def test_the_gravest_output_of_a_case_is_that_of_the_case() -> None:
    codes = (Code.PASS, Code.PRECISION_LOST, Code.PARITY_EXCEEDED)
    for order in itertools.permutations(codes):
        result = RuntimeResult(runtime="ort-cpu", cases=[case(code, str(code)) for code in order])
        (one,) = [o for o in outcomes(result) if o.name.startswith("normal")]
        assert one.code is Code.PARITY_EXCEEDED


def test_a_signature_and_a_case_with_the_same_code_are_both_told() -> None:
    shape = "shape [1, 2], expected [1, 3]"
    result = RuntimeResult(
        runtime="ort-cpu",
        cases=[case(Code.SHAPE_MISMATCH, shape)],
        findings=[
            Finding.of(
                Code.SHAPE_MISMATCH, f"1 of 1 cases; worst normal-b1-n16: {shape}", check="parity"
            ),
            Finding.of(
                Code.SHAPE_MISMATCH,
                "output output has shape ['batch'], promised [16]",
                check="signature",
            ),
        ],
    )
    red = [outcome.name for outcome in outcomes(result) if outcome.red]
    assert red == ["signature", "normal-b1-n16[optimizer-on]"]


def test_held_out_data_that_does_not_run_is_the_task() -> None:
    message = "layer/elu on ort-cpu: held-out data does not run: no memory"
    finding = Finding.of(Code.RUN_FAILED, message, check="task")
    task = TaskResult(metric="top1", score=0.9, reference_score=0.9, allowed=0.1, samples=10)
    failed = RuntimeResult(runtime="ort-cpu", cases=[case()], findings=[finding])
    did = CheckResult(name="task", code=Code.PASS)
    passed = RuntimeResult(runtime="ort-cpu", cases=[case()], checks=[did], task=task)
    assert verdicts(parsed(report(artifact(failed)))) == {"task": "failure run_failed"}
    assert "task" in suite(parsed(report(artifact(passed))), f"{DYNAMIC} on ort-cpu")


def test_a_score_that_fell_is_the_task() -> None:
    finding = Finding.of(
        Code.METRIC_FELL, "layer/elu on ort-cpu: accuracy on held-out data is 10%", check="task"
    )
    task = TaskResult(metric="top1", score=0.1, reference_score=0.9, allowed=0.1, samples=10)
    fell = RuntimeResult(runtime="ort-cpu", cases=[case()], task=task, findings=[finding])
    assert verdicts(parsed(report(artifact(fell)))) == {"task": "failure metric_fell"}


def test_nothing_compared_is_red_though_all_is_skipped() -> None:
    script = "layer/elu/torchscript/dynamic"
    one = artifact(name=script)
    one.findings = [
        Finding.of(Code.NOT_JUDGED, "none of the runtimes used runs torchscript", check="judged")
    ]
    root = parsed(report(one))
    assert verdicts(root) == {"judged": "skipped not_judged", "verdict": "failure not_judged"}
    assert "torch is not installed" in suite(root, script)["judged"][0].attrib["message"]
    assert "exit code 5" in suite(root, "folder")["verdict"][0].attrib["message"]
    assert verdicts(parsed(report())) == {"verdict": "failure not_judged"}


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        pytest.param("a < b & c > \"d\" 'e'", "a < b & c > \"d\" 'e'", id="markup"),
        pytest.param("]]>", "]]>", id="end-of-cdata"),
        pytest.param("\x00\x1b[31mred\x7f", "\\x00\\x1b[31mred\x7f", id="control"),
        pytest.param("one\ntwo\tthree\r", "one\ntwo\tthree\r", id="white-space"),
        pytest.param("half \ud800 pair", "half \\ud800 pair", id="surrogate"),
        pytest.param("\ufffe\uffff", "\\ufffe\\uffff", id="no-characters"),
        pytest.param("größer 🙂", "größer 🙂", id="unicode"),
    ],
)
def test_any_message_can_be_read_back(text: str, read_as: str) -> None:
    result = RuntimeResult(runtime="ort-cpu", cases=[case()])
    result.findings = [Finding.of(Code.RUN_FAILED, text, check="parity")]
    found = report(artifact(result))
    (told,) = [case[0] for case in parsed(found).iter("testcase") if len(case)]
    assert told.attrib["message"] == read_as
    render(found).encode("utf-8")
