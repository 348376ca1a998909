"""What mkdocs does beyond its own: files of the repository that pages link to are in the site.

Pages are written for the host of the repository too, where ``../benchmarks/x.md`` is a link that
leads out of ``docs/``. Here such a file is copied to ``benchmarks/x.md``, and links follow it.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to outside ``docs/``, and what that links to."""
    known = {file.src_uri for file in files}
    waiting = [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")]
    while waiting:
        page = waiting.pop()
        for target, _ in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            source = _source(page, target)
            if source.startswith("docs/") or source in known or not (ROOT / source).is_file():
                continue
            known.add(source)
            place = InclusionLevel.NOT_IN_NAV
            files.append(
                File.generated(config, source, abs_src_path=str(ROOT / source), inclusion=place)
            )
            if source.endswith(".md"):
                waiting.append(source)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links that leave ``docs/`` at the copies."""
    here = page.file.src_uri
    outside = not Path(page.file.abs_src_path).is_relative_to(ROOT / "docs")

    def moved(match: re.Match[str]) -> str:
        source = _source(here if outside else f"docs/{here}", match[1])
        there = source.removeprefix("docs/")
        return f"]({posixpath.relpath(there, posixpath.dirname(here) or '.')}{match[2] or ''})"

    return LINK.sub(moved, markdown)


def _source(page: str, target: str) -> str:
    """Where a link of a page leads, from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
