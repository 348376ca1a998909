from pathlib import Path

import pytest

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode, gravest
from linattn_runtime_checks.latency.table import crossovers
from linattn_runtime_checks.report.markdown import render
from linattn_runtime_checks.report.tables import artifact_table
from linattn_runtime_checks.report.terminal import fitting, show
from linattn_runtime_checks.results.latency import LatencyResult, LatencyTable
from linattn_runtime_checks.results.report import (
    ArtifactResult,
    CaseResult,
    Finding,
    Report,
    RuntimeResult,
    TaskResult,
)


def artifact(method: str, code: Code = Code.PASS, *, judged: bool = True) -> ArtifactResult:
    case = CaseResult(
        mode="optimizer-on",
        case="normal-b1-n16",
        family="normal",
        batch=1,
        sequence=16,
        code=code,
        multiple=1.5 if code is Code.PASS else 9.0,
        row_error=3e-7,
    )
    findings = []
    if code is not Code.PASS:
        message = f"layer/{method}: lengths 16; worst | element [0, 1]"
        findings = [Finding(code=code, message=message, exit_code=ExitCode.PARITY)]
    runtime = RuntimeResult(
        runtime="ort-cpu",
        cases=[case] if judged else [],
        findings=findings,
        session_ms=3.0,
        task=TaskResult(
            metric="top1", score=0.975, reference_score=0.975, allowed=0.003, samples=360
        ),
    )
    return ArtifactResult(
        id=f"layer/{method}/onnx/dynamic",
        model="layer",
        method=method,
        format="onnx",
        variant="dynamic",
        bytes=1_077_000,
        parameters=263_168,
        nodes=33,
        declared_sequence=(1, 4096),
        verified_sequence=(1, 4096) if code is Code.PASS else None,
        lengths=[1, 4096],
        runtimes=[runtime] if judged else [],
    )


def latency(method: str, sequence: int, p50: float, runtime: str = "ort-cpu") -> LatencyResult:
    return LatencyResult(
        model="layer",
        method=method,
        format="onnx",
        variant="dynamic",
        runtime=runtime,
        batch=1,
        sequence=sequence,
        runs=20,
        first_ms=2 * p50,
        min_ms=p50,
        p50_ms=p50,
        p90_ms=1.25 * p50,
        p99_ms=1.5 * p50,
        low_ms=0.9 * p50,
        high_ms=1.1 * p50,
    )


def report(*artifacts: ArtifactResult) -> Report:
    results = [latency("softmax", 16, 1.0), latency("softmax", 4096, 100.0)]
    results += [latency("elu", 16, 2.0), latency("elu", 4096, 20.0)]
    results += [latency("elu", 4096, 40.0, "eager")]
    found = Report(
        environment={"python": "3.11.7", "cores": 2},
        runtimes=["ort-cpu"],
        left_out={"ort-cuda": "no CUDAExecutionProvider", "pt2": "not asked for"},
        artifacts=list(artifacts),
        latency=LatencyTable(
            threads=2,
            load_before=0.1,
            load_after=1.9,
            machine_ms={16: 1.0, 4096: 1.0},
            results=results,
            crossovers=crossovers(results),
        ),
    )
    found.settle(unjudged_is_unverified=False)
    return found


def test_markdown_has_verdict_numbers_ratios_and_crossover() -> None:
    text = render(report(artifact("softmax"), artifact("elu")))
    assert text.startswith("# linattn report: PASS\n\n2 of 2 artifacts pass.")
    elu = next(line for line in text.splitlines() if "/elu/onnx" in line)
    for value in ("1.0 MiB", "263,168", "33", "PASS", "1.50", "3.0e-07", "1..4096 (2)", "20.00"):
        assert value in elu
    start = "| layer/elu | ort-cpu | dynamic | 1 | 4096 |"
    row = next(line for line in text.splitlines() if line.startswith(start))
    assert "| 20.00 / 25.00 / 30.00 | 0.50 | 0.20 |" in row, "half of eager, a fifth of softmax"
    assert "| layer/elu | ort-cpu | 4096 tokens |" in text
    assert "97.50%" in text
    assert "ort-cuda: no CUDAExecutionProvider" in text
    assert "not asked for" not in text


def test_markdown_shows_findings_first_and_keeps_its_tables_whole() -> None:
    text = render(report(artifact("elu", Code.PARITY_EXCEEDED)))
    assert text.startswith("# linattn report: PARITY")
    assert text.index("`parity_exceeded`") < text.index("## Artifacts")
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        cells = {line.replace("\\|", "").count("|") for line in lines}
        assert len(cells) <= 1, block


@pytest.mark.parametrize("quiet", [False, True], ids=["tables", "quiet"])
def test_the_terminal_ends_with_verdict_folder_and_next_command(
    quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    show(report(artifact("softmax"), artifact("elu")), Path("my out"), verbose=False, quiet=quiet)
    out, err = capsys.readouterr()
    assert out == ""
    verdict, folder, check = err.rstrip().splitlines()[-3:]
    assert verdict.startswith("PASS")
    assert folder.endswith("my out")
    assert check.endswith("linattn-check 'my out'")
    assert ("Artifacts" in err) is not quiet


def test_the_terminal_shows_brackets_of_messages_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(report(artifact("elu", Code.PARITY_EXCEEDED)), Path("out"), verbose=False, quiet=True)
    assert "worst | element [0, 1]" in capsys.readouterr().err


def test_what_was_not_judged_is_said_and_nothing_judged_is_unverified() -> None:
    some = report(artifact("softmax"), artifact("elu", judged=False))
    assert some.exit_code is ExitCode.PASS
    assert "1 were not judged" in render(some)
    assert "NOT JUDGED" not in render(some), "of a runtime that was not asked for"
    some.left_out = {"ort-cuda": "no CUDAExecutionProvider"}
    assert "NOT JUDGED" in render(some)
    none = report(artifact("elu", judged=False))
    assert none.exit_code is ExitCode.UNVERIFIED
    some.settle(unjudged_is_unverified=True)
    assert some.verdict == "UNVERIFIED"


def test_the_gravest_code_wins() -> None:
    order = [70, 4, 3, 1, 6, 5, 0]
    for index, code in enumerate(order):
        assert gravest(ExitCode(c) for c in reversed(order[index:])) == code
    assert gravest([]) is ExitCode.PASS


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160, 170, 300])
def test_a_narrow_terminal_loses_whole_columns_and_says_which(width: int) -> None:
    table = artifact_table(report(artifact("softmax"), artifact("elu")))
    shown, dropped = fitting(table, width)
    assert {*shown.headings, *dropped} == set(table.headings)
    assert shown.headings[0] == "artifact"
    assert {"verdict", "x rounding"} <= set(shown.headings)
    assert all(len(row) == len(shown.headings) for row in shown.rows)
    assert (not dropped) is (width > 160)  # which is wide enough for a report without scores
