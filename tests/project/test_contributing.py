"""What CONTRIBUTING.md names exists: files, folders, rooms, and the fields of each record."""

import ast
import dataclasses
import re
from typing import Any

import pytest

from linattn.contract import Method
from linattn_export.formats.base import Format
from linattn_export.inputs.families import Family
from linattn_models import Model
from linattn_runtime_checks.checks.base import Check
from linattn_runtime_checks.faults.graphs import GraphFault
from linattn_runtime_checks.runtimes.base import Runtime
from rooms import ROOMS
from roots import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", TEXT)))


@pytest.mark.parametrize("path", [path for path in PATHS if path.count("/") > 1 or "." in path])
def test_a_path_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("package", ROOMS)
def test_the_rooms_are_those_of_the_arrows(package: str) -> None:
    section = TEXT[TEXT.index(f"| room of `{package}/`") :].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)/` \|", section, re.MULTILINE)) == ROOMS[package]


RECORDS: tuple[Any, ...] = (Method, Model, Format, Runtime, Check, GraphFault, Family)


def given(record: str) -> set[str]:
    """The fields that the example of ``record`` fills in."""
    for block in re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == record:
                return {word.arg or "" for word in node.keywords}
    raise AssertionError(f"no example of {record}")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.__name__))
def test_an_example_fills_in_what_its_record_needs(record: Any) -> None:
    fields = {field.name: field for field in dataclasses.fields(record)}
    needed = {
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    assert needed <= given(record.__name__) <= set(fields)
