"""npm's packages of the examples: pinned, hashed, and from no registry in particular."""

import json
import re

import pytest

from golden_runs import EXAMPLES


@pytest.mark.parametrize("example", ["node", "page"])
def test_packages_are_pinned_and_no_registry_is_named(example: str) -> None:
    package = json.loads((EXAMPLES / example / "package.json").read_text())
    lock = json.loads((EXAMPLES / example / "package-lock.json").read_text())
    for name, version in package["dependencies"].items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    installed = [item for path, item in lock["packages"].items() if path]
    assert all(item["integrity"].startswith("sha512-") for item in installed)
    assert not any("resolved" in item for item in installed)
