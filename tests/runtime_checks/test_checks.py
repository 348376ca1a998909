"""The table of checks: what generic code may rely on."""

import ast
from pathlib import Path

import pytest

from linattn_runtime_checks import checks
from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.checks.base import Check, When
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.faults.graphs import GRAPH_FAULTS
from linattn_runtime_checks.faults.sessions import SESSION_FAULTS

FOLDER = Path(checks.__file__).parent
PACKAGE = FOLDER.parent


def test_every_file_of_a_check_is_in_the_table() -> None:
    """One file and one line each; what the others hold is shared by checks."""
    shared = {"__init__", "base", "inputs", "outputs", "performing"}
    assert len({path.stem for path in FOLDER.glob("*.py")} - shared) == len(CHECKS)
    assert [check.name for check in CHECKS.values()] == list(CHECKS)


def test_every_planted_fault_is_one_that_a_check_must_reject() -> None:
    named = {fault for check in CHECKS.values() for fault in check.faults}
    assert named == set(GRAPH_FAULTS) | set(SESSION_FAULTS)


def test_a_check_without_a_run_is_found_by_what_its_file_names() -> None:
    elsewhere = {name for name, check in CHECKS.items() if check.run is None}
    carried = {n for n, c in CHECKS.items() if c.when in (When.FOLDER, When.CARRIED, When.ARTIFACT)}
    assert elsewhere == carried


def test_a_finding_under_the_code_of_another_check_is_a_fault_of_ours() -> None:
    check = Check(name="toy", title="toys are whole", codes=(Code.PADDING_LEAKS,))
    assert check.finding(Code.PADDING_LEAKS, "x").check == "toy"
    assert check.finding(Code.RUN_FAILED, "x").check == "toy"
    with pytest.raises(AssertionError, match="future_leaks is no code of the check toy"):
        check.finding(Code.FUTURE_LEAKS, "x")


def test_every_finding_of_the_product_names_a_check_of_the_table() -> None:
    """Where the table cannot be imported, the name is written out; it must be one of them."""
    named = [
        keyword.value.value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "check" and isinstance(keyword.value, ast.Constant)
    ]
    assert named
    assert set(named) <= set(CHECKS)
