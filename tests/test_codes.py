"""The codes, their documentation and the report's schema say the same; ``--write`` writes it."""

import ast
import json
import sys
from pathlib import Path

from linattn_runtime_checks.codes import CODES, Code
from linattn_runtime_checks.report.model import SCHEMA_VERSION

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "codes.md"
CHECKS = ROOT / "runtime_checks" / "linattn_runtime_checks"
PACKAGES = [CHECKS, ROOT / "export" / "linattn_export"]
EVERYWHERE = [*PACKAGES, ROOT / "linattn", ROOT / "models", ROOT / "benchmarks", ROOT / "tests"]
NOT_FOUND_BY_A_CHECK: dict[Code, str] = {
    Code.INPUT_WRITTEN: "the export sees it in the module",
    Code.GRAPH_UNROLLED: "the export sees it in what it captured",
}
"""Codes that no check finds, and why they are there."""

INTRODUCTION = """\
# Codes

What `linattn-check` finds has a stable code: in `report.json`, in the JUnit file, in pytest and on
the terminal. Codes are only ever added. The exit code of a run is the gravest of all findings.

Written by `python tests/test_codes.py --write`.

| code | exit code | meaning | fix |
| --- | --- | --- | --- |
"""


def text() -> str:
    """``docs/codes.md``."""
    rows = [
        f"| `{code}` | {int(info.exit_code)} {info.exit_code.name} | {info.meaning} | {info.fix} |"
        for code, info in CODES.items()
    ]
    return INTRODUCTION + "\n".join(rows) + "\n"


def used(path: Path) -> set[str]:
    """The names ``x`` of every ``Code.x`` in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Code"
        and not node.attr.startswith("__")
    }


def test_the_document_is_that_of_the_table() -> None:
    assert DOCUMENT.read_text() == text(), "run: python tests/test_codes.py --write"
    rows = [line for line in text().splitlines() if line.startswith("| `")]
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)


def test_every_code_has_its_line_once_with_meaning_and_fix() -> None:
    assert list(CODES) == list(Code)
    assert all(info.meaning and info.fix for info in CODES.values())


def test_the_published_schema_lists_exactly_the_codes() -> None:
    path = ROOT / "docs" / f"report-{SCHEMA_VERSION}.schema.json"
    schema = json.loads(path.read_text())
    listed = schema["$defs"]["Code"]["enum"] if "Code" in schema["$defs"] else []
    assert listed == [str(code) for code in Code], "run: python tests/test_schemas.py --write"


def test_every_code_that_is_written_somewhere_exists() -> None:
    files = [path for folder in EVERYWHERE for path in folder.rglob("*.py")]
    assert len(files) > 50
    unknown = {
        str(path.relative_to(ROOT)): wrong
        for path in files
        if (wrong := used(path) - Code.__members__.keys())
    }
    assert not unknown


def test_every_code_is_found_by_some_check() -> None:
    # The table itself names all, and the reports only show what was found.
    checks = [
        path
        for path in CHECKS.rglob("*.py")
        if path.name != "codes.py" and "report" not in path.relative_to(CHECKS).parts
    ]
    found = set().union(*map(used, checks))
    assert Code.__members__.keys() - found == {code.name for code in NOT_FOUND_BY_A_CHECK}


def test_a_code_that_does_not_exist_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("a = Code.PASS\nb = Code.NO_SUCH_THING\nc = ExitCode.PASS2\n")
    assert used(tmp_path / "x.py") == {"PASS", "NO_SUCH_THING"}


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], "usage: python tests/test_codes.py --write"
    DOCUMENT.write_text(text())
