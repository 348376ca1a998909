from pathlib import Path

import pytest

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode, gravest
from linattn_runtime_checks.report.markdown import render
from linattn_runtime_checks.report.tables import artifact_table
from linattn_runtime_checks.report.terminal import fitting, show
from method_reports import artifact, report


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
