"""The codes, their documentation and the report's schema say the same."""

import ast
import json
from pathlib import Path

from doc_codes import DOCUMENT, text
from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.results.report import SCHEMA_VERSION
from roots import ROOT

RUNTIME_CHECKS = ROOT / "runtime_checks" / "linattn_runtime_checks"
PACKAGES = [RUNTIME_CHECKS, ROOT / "export" / "linattn_export"]
EVERYWHERE = [*PACKAGES, ROOT / "linattn", ROOT / "models", ROOT / "benchmarks", ROOT / "tests"]


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
    assert DOCUMENT.read_text() == text(), "run: python tests/write_docs.py"
    rows = [line for line in text().splitlines() if line.startswith("| `")]
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)


def test_every_code_has_its_line_once_with_meaning_and_fix() -> None:
    assert list(CODES) == list(Code)
    assert all(info.meaning and info.fix for info in CODES.values())


def test_the_published_schema_lists_exactly_the_codes() -> None:
    path = ROOT / "docs" / f"report-{SCHEMA_VERSION}.schema.json"
    schema = json.loads(path.read_text())
    listed = schema["$defs"]["Code"]["enum"] if "Code" in schema["$defs"] else []
    assert listed == [str(code) for code in Code], "run: python tests/write_docs.py"


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
