"""Builds the site: ``python docs/build_site.py OUT``; needs the extra ``docs``.

Pages are written for the host of the repository too, where ``../benchmarks/x.md`` is a link that
leads out of ``docs/``. The builder reads one folder, so it is given a copy in which such a file is
at ``benchmarks/x.md``, and links follow it.
"""

import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def build(output: Path) -> int:
    """Build the site into ``output``; returns the builder's exit code, not 0 after a warning."""
    with tempfile.TemporaryDirectory() as folder:
        copy_pages(Path(folder))
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=folder, check=False)
        if done.returncode == 0:
            shutil.copytree(Path(folder, "site"), output, dirs_exist_ok=True)
    return done.returncode


def copy_pages(folder: Path) -> None:
    """Copy the settings, ``docs/``, what pages link to outside of it, and what that links to."""
    shutil.copyfile(ROOT / "mkdocs.yml", folder / "mkdocs.yml")
    pages = (path for path in (ROOT / "docs").rglob("*") if path.is_file())
    waiting = [str(path.relative_to(ROOT)) for path in pages if path.suffix != ".py"]
    known = set(waiting)
    while waiting:
        source = waiting.pop()
        target = folder / "docs" / _place(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not source.endswith(".md"):
            shutil.copyfile(ROOT / source, target)
            continue
        text = (ROOT / source).read_text(encoding="utf-8")
        target.write_text(LINK.sub(partial(_moved, source), text), encoding="utf-8")
        linked = {_source(source, name) for name, _ in LINK.findall(text)}
        more = {name for name in linked - known if (ROOT / name).is_file()}
        known |= more
        waiting += sorted(more)


def _moved(page: str, match: re.Match[str]) -> str:
    """A link of ``page``, as it must be in the copy."""
    there, here = _place(_source(page, match[1])), posixpath.dirname(_place(page))
    return f"]({posixpath.relpath(there, here or '.')}{match[2] or ''})"


def _source(page: str, target: str) -> str:
    """Where a link of a page leads, from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _place(source: str) -> str:
    """Where a file of the repository is in the copy."""
    return source.removeprefix("docs/")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/build_site.py OUT")
    sys.exit(build(Path(sys.argv[1])))
