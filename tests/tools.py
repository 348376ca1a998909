"""Programs and packages that are not Python's, which some slow tests run."""

import os
import shutil
from pathlib import Path

import pytest


def program(name: str, package: str) -> str:
    """The path of a program; without it the test is skipped, or fails in continuous integration."""
    found = shutil.which(name)
    if found is None:
        missing(f"no {name} on the PATH; on Debian: apt-get install {package}")
    return str(found)


def node_package(folder: Path, name: str) -> Path:
    """A package that ``npm ci`` has installed in ``folder``."""
    package = folder / "node_modules" / name
    if not (package / "package.json").is_file():
        missing(f"no {name} in {folder}; run there: npm ci")
    return package


def missing(message: str) -> None:
    """Skip; where .ci/run has installed everything, to skip would be to pass unseen."""
    fail = pytest.fail if "LINATTN_NEEDS_TOOLS" in os.environ else pytest.skip
    fail(message)
