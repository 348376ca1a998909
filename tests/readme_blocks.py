"""The README's blocks of code."""

import re

from roots import ROOT

README = ROOT / "README.md"


def block(marker: str) -> str:
    """The code below ``<!-- marker -->``."""
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None, marker
    return found.group(1).strip()
