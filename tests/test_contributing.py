"""What CONTRIBUTING.md names exists: files, folders and rooms."""

import re
from pathlib import Path

import pytest

from test_rooms import ROOMS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", TEXT)))


@pytest.mark.parametrize("path", [path for path in PATHS if path.count("/") > 1 or "." in path])
def test_a_path_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("package", ROOMS)
def test_the_rooms_are_those_of_the_arrows(package: str) -> None:
    section = TEXT[TEXT.index(f"| room of `{package}/`") :].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)/` \|", section, re.MULTILINE)) == ROOMS[package]
