"""The summary fits a comment of GitHub whatever was found, and says what it leaves out."""

import re

import pytest

from artifact_reports import artifact, case, report
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.report.families import family_table
from linattn_runtime_checks.report.summary import MOST_CHARACTERS, render
from linattn_runtime_checks.results.report import (
    ArtifactResult,
    CaseResult,
    Finding,
    Report,
    RuntimeResult,
)

LIMIT_OF_GITHUB = 65_536


def result(*cases: CaseResult, findings: tuple[Finding, ...] = ()) -> RuntimeResult:
    return RuntimeResult(runtime="ort-cpu", cases=list(cases), findings=list(findings))


def verified(found: ArtifactResult, low: int, high: int) -> ArtifactResult:
    return found.model_copy(update={"verified_sequence": (low, high)})


def lines_of(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def assert_tables_are_whole(text: str) -> None:
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.replace("\\|", "").count("|") for row in rows}) <= 1, block


def test_the_verdict_is_first_then_counts_then_one_line_for_each_method() -> None:
    one = verified(artifact(result(case(multiple=1.25))), 1, 64)
    two = verified(artifact(result(case(multiple=2.5)), name="layer/elu/onnx/n16"), 16, 16)
    other = artifact(name="layer/linformer/pt2/dynamic")
    other.findings = [
        Finding.of(Code.NOT_JUDGED, "none of the runtimes used runs pt2 files", check="parity")
    ]
    text = render(report(one, two, other))
    heading, _, counts = text.splitlines()[:3]
    assert heading == "## linattn: PASS"
    assert counts.startswith("2 of 3 artifacts pass, 1 were not judged; 2 cases on ort-cpu; ")
    assert counts.endswith("exit code 0.")
    assert lines_of(text, "| layer/elu ") == ["| layer/elu | PASS | 2 of 2 | 2.50x | 1..64 | - |"]
    assert lines_of(text, "| layer/linformer ") == [
        "| layer/linformer | NOT JUDGED | 0 of 1 | - | - | - |"
    ]
    assert "finding" not in text
    assert "Not proven, and failing nothing: 1 (`not_judged`)" in text
    assert text.rstrip().endswith("</details>")


def test_findings_come_with_the_fix_of_their_code_once() -> None:
    codes = (Code.PARITY_EXCEEDED, Code.PARITY_EXCEEDED, Code.LOAD_FAILED)
    findings = tuple(
        Finding.of(code, f"number {n}", check="parity") for n, code in enumerate(codes)
    )
    text = render(report(artifact(result(case(), findings=findings))))
    assert text.startswith("## linattn: EXPORT\n")
    assert "### 3 findings" in text
    assert text.index("- `parity_exceeded` number 0") < text.index("| method |")
    assert text.count(CODES[Code.PARITY_EXCEEDED].fix) == 1
    assert text.count(CODES[Code.LOAD_FAILED].fix) == 1


def test_what_fails_nothing_is_counted_apart() -> None:
    cases = [case(), case(Code.PRECISION_LOST, "lost", family="scale=30", rounding=0.12)]
    lost = Finding.of(Code.PRECISION_LOST, "2 of 40 cases", check="parity")
    text = render(report(artifact(result(*cases, findings=(lost,)))))
    assert "### " not in text
    assert "Not proven, and failing nothing: 1 (`precision_lost`)" in text
    assert "| scale=30 (lost 12 %) |" in text


def test_nothing_judged_is_a_finding() -> None:
    one = artifact(name="layer/elu/pt2/dynamic")
    one.findings = [
        Finding.of(Code.NOT_JUDGED, "none of the runtimes used runs pt2 files", check="parity")
    ]
    text = render(report(one))
    assert text.startswith("## linattn: UNVERIFIED\n")
    assert "- `not_judged` none of the runtimes used runs pt2 files" in text
    assert CODES[Code.NOT_JUDGED].fix in text


def test_who_is_to_blame_is_told_below_the_findings() -> None:
    findings = (Finding.of(Code.PARITY_EXCEEDED, "wrong numbers", check="parity"),)
    wrong = [
        artifact(result(case(Code.PARITY_EXCEEDED), findings=findings), name=f"layer/m{n}/onnx/d")
        for n in range(30)
    ]
    for one in wrong:
        one.runtimes[0].blame = "the export departs first; eager was right"
    text = render(report(*wrong))
    assert text.index("wrong numbers") < text.index("the export departs first")
    assert text.count("the export departs first") == 10
    assert "20 more are left out here; " in text


def test_3000_findings_fit_and_the_rest_is_counted() -> None:
    findings = tuple(
        Finding.of(Code.PARITY_EXCEEDED, f"finding {n} " + "very long words " * 100, check="parity")
        for n in range(3000)
    )
    text = render(report(artifact(result(case(), findings=findings))))
    assert len(text) < MOST_CHARACTERS < LIMIT_OF_GITHUB
    assert len(lines_of(text, "- `parity_exceeded`")) == 20
    assert "### 3,000 findings" in text
    assert "2,980 more findings are left out here; `linattn-check DIR --json` prints all" in text
    assert "| layer/elu |" in text, "findings do not push the table out"


def test_3000_methods_fit_and_the_rest_is_counted() -> None:
    many = [artifact(result(case()), name=f"layer/m{n}/onnx/dynamic") for n in range(3000)]
    text = render(report(*many))
    shown = len(lines_of(text, "| layer/m"))
    assert 100 < shown < 3000
    assert len(text) < MOST_CHARACTERS
    assert f"{3000 - shown:,} more methods are left out here; " in text
    assert_tables_are_whole(text)


@pytest.mark.parametrize("character", ["<", "&", "|", "x", "\n", "🙂"])
def test_the_limit_holds_whatever_the_texts_are(character: str) -> None:
    long = character * 20_000
    findings = tuple(Finding.of(code, long, check="parity") for code in Code for _ in range(40))
    cases = [case(Code.RUN_FAILED, family=f"{long}{n}") for n in range(30)]
    found = report(
        *(
            artifact(result(*cases, findings=findings), name=f"layer/{n}{long}/onnx/dynamic")
            for n in range(5)
        )
    )
    found.environment = {f"{long}{n}": long for n in range(100)}
    found.left_out = {f"runtime-{n}": long for n in range(100)}
    found.runtimes = [long] * 100
    text = render(found)
    assert len(text) < MOST_CHARACTERS
    assert text.rstrip().endswith("</details>")
    assert_tables_are_whole(text)


def test_texts_cannot_break_out_of_their_place() -> None:
    findings = (Finding.of(Code.RUN_FAILED, "a <b>\n\n</details> | `c`", check="parity"),)
    found = report(artifact(result(case(), findings=findings)))
    found.environment = {"processor": "a | b\n</details>"}
    text = render(found)
    assert "a &lt;b> &lt;/details> | `c`" in text
    assert "| processor | a \\| b &lt;/details> |" in text
    assert len(re.findall("</details>", text)) == 1


# The table of families


def table(*artifacts: ArtifactResult) -> dict[str, tuple[str, ...]]:
    found = family_table(report(*artifacts))
    assert found is not None
    assert found.note
    return {row[0]: row[1:] for row in (found.headings, *found.rows)}


def test_every_family_has_a_row_and_every_method_a_column() -> None:
    elu = artifact(result(case(multiple=1.0), case(family="huge-token", multiple=0.5)))
    again = artifact(result(case(multiple=1.024)), name="layer/elu/onnx/n16")
    bare = artifact(result(case(family="zero-key")), name="attention/relu/onnx/dynamic")
    assert table(elu, again, bare) == {
        "family": ("layer/elu", "attention/relu"),
        "normal": ("1.02x", "-"),
        "huge-token": ("0.50x", "-"),
        "zero-key": ("-", "1.00x"),
    }


@pytest.mark.parametrize(
    ("cases", "cell"),
    [
        pytest.param([case(Code.PRECISION_LOST, rounding=0.117)], "lost 11.7 %", id="lost"),
        pytest.param(
            [case(Code.PRECISION_LOST, rounding=share) for share in (0.06, 0.12, 0.07)],
            "lost 12 %",
            id="the-most-that-is-lost",
        ),
        pytest.param([case(Code.PRECISION_LOST, rounding=float("inf"))], "not finite", id="inf"),
        pytest.param([case(Code.PRECISION_LOST, rounding=None)], "not finite", id="unknown"),
        pytest.param([case(Code.RUN_FAILED, multiple=None)], "run_failed", id="failed"),
        pytest.param(
            [case(Code.PRECISION_LOST, rounding=0.2), case(Code.PARITY_EXCEEDED), case()],
            "parity_exceeded",
            id="what-failed-is-told-before-what-is-lost",
        ),
        pytest.param(
            [case(Code.PARITY_EXCEEDED), case(Code.RUN_FAILED, multiple=None)],
            "run_failed",
            id="what-did-not-run-first",
        ),
        pytest.param([case(multiple=None)], "-", id="no-number"),
    ],
)
def test_a_cell_tells_the_worst(cases: list[CaseResult], cell: str) -> None:
    assert table(artifact(result(*cases)))["normal"] == (cell,)


def test_no_case_no_table() -> None:
    assert family_table(Report(environment={}, runtimes=[], left_out={})) is None
    assert family_table(report(artifact())) is None
