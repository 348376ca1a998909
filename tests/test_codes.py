"""The codes, their documentation and the report's schema say the same; ``--write`` writes it."""

import ast
import json
import sys
from pathlib import Path

from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.results.report import SCHEMA_VERSION

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "codes.md"
OWNERS = {code: check.name for check in CHECKS.values() for code in check.codes}
RUNTIME_CHECKS = ROOT / "runtime_checks" / "linattn_runtime_checks"
PACKAGES = [RUNTIME_CHECKS, ROOT / "export" / "linattn_export"]
EVERYWHERE = [*PACKAGES, ROOT / "linattn", ROOT / "models", ROOT / "benchmarks", ROOT / "tests"]
INTRODUCTION = """\
# Codes

What `linattn-check` finds has a stable code: in `report.json`, in the JUnit file, in pytest and on
the terminal. Codes are only ever added. The exit code of a run is the gravest of all findings.

Written by `python tests/test_codes.py --write`.

| code | check | exit code | meaning | fix |
| --- | --- | --- | --- | --- |
"""
CHECKS_INTRODUCTION = """
## Checks

Every finding names the check that made it. They have their turns in this order.

| check | what holds where it passes | planted faults that it must reject |
| --- | --- | --- |
"""


def text() -> str:
    """``docs/codes.md``."""
    rows = [
        f"| `{code}` | {OWNERS.get(code, '-')} "
        f"| {int(info.exit_code)} {info.exit_code.name} | {info.meaning} | {info.fix} |"
        for code, info in CODES.items()
    ]
    checks = [
        f"| {check.name} | {check.title} | {', '.join(check.faults) or '-'} |"
        for check in CHECKS.values()
    ]
    codes = INTRODUCTION + "\n".join(rows) + "\n"
    return codes + CHECKS_INTRODUCTION + "\n".join(checks) + "\n"


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
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)


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


def test_every_code_belongs_to_one_check() -> None:
    owned = [code for check in CHECKS.values() for code in check.codes]
    assert sorted(owned) == sorted(set(Code) - {Code.PASS})
    for check in CHECKS.values():
        others = set(owned) - set(check.codes)
        assert set(check.shares) <= others, "it shares what belongs to another"


def test_a_code_that_does_not_exist_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("a = Code.PASS\nb = Code.NO_SUCH_THING\nc = ExitCode.PASS2\n")
    assert used(tmp_path / "x.py") == {"PASS", "NO_SUCH_THING"}


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], "usage: python tests/test_codes.py --write"
    DOCUMENT.write_text(text())
