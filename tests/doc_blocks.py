"""The code blocks of a page, and what the comment above each says is done with it.

    <!-- run -->               run it; in bash, or as a Python program of its own
    <!-- run: slow -->         the same, by a slow test only
    <!-- run: references -->   the same, by a test that has the public packages
    <!-- run: exit 3 -->       the same; it exits with 3
    <!-- file: model.py -->    write it to the page's folder
    <!-- prints -->            its lines are among what the block run last printed
    <!-- not run: reason -->

All blocks of a page share one folder, which is empty at its beginning.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

MUST_SAY = {"sh", "bash", "console", "python", "py"}
"""Languages of blocks that a reader would run."""
FENCE = re.compile(r"^( *)```([\w+-]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"<!-- (run|file|prints|not run)(?:: (.+?))? -->\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One code block; ``action`` is None without a comment above it."""

    line: int
    language: str
    text: str
    action: str | None
    rest: str

    @property
    def kind(self) -> str:
        """The marker of the tests that run it, "" for all."""
        return next((word for word in self._words() if word in {"slow", "references"}), "")

    @property
    def exit_code(self) -> int:
        """What it exits with."""
        codes = [word.split()[1] for word in self._words() if word.startswith("exit ")]
        return int(codes[0]) if codes else 0

    def _words(self) -> list[str]:
        return self.rest.split(", ") if self.action == "run" else []


def blocks(text: str) -> list[Block]:
    """Those of a page, in order."""
    found = []
    for fence in FENCE.finditer(text):
        above = text[: fence.start()]
        marker = MARKER.search(above.rsplit("\n", 2)[-2]) if "\n" in above else None
        indent = len(fence[1])
        body = "\n".join(line[indent:] for line in fence[3].rstrip("\n").split("\n"))
        found.append(
            Block(
                line=above.count("\n") + 1,
                language=fence[2],
                text=body,
                action=marker[1] if marker else None,
                rest=(marker[2] or "") if marker else "",
            )
        )
    return found


def faults(page: Iterable[Block]) -> Iterator[str]:
    """What a page leaves open about its blocks."""
    for block in page:
        where = f"line {block.line} ({block.language})"
        if block.action is None and block.language in MUST_SAY:
            yield f"{where}: no comment above it says whether it is run"
        elif block.action == "not run" and len(block.rest.split()) < 3:
            yield f"{where}: not run, but why?"
        elif block.action == "file" and not block.rest:
            yield f"{where}: which file?"
        elif block.action == "run":
            if block.language not in MUST_SAY:
                yield f"{where}: this language is not run"
            for word in block._words():
                if word and not re.fullmatch(r"slow|references|exit \d+", word):
                    yield f"{where}: what is {word!r}?"


def run_page(page: list[Block], folder: Path, kind: str = "") -> int:
    """Run the blocks in ``folder``, those of ``kind`` too; how many were run.

    Raises:
        AssertionError: a block exits with another code, or does not print what the page says.
    """
    done, printed, skipped = 0, "", False
    for block in page:
        if block.action == "file":
            (folder / block.rest).write_text(block.text + "\n", encoding="utf-8")
        elif block.action == "run":
            skipped = block.kind not in ("", kind)
            if not skipped:
                code, printed = _run(block, folder)
                assert code == block.exit_code, f"line {block.line}: exit {code}\n{printed}"
                done += 1
        elif block.action == "prints" and not skipped:
            for line in block.text.split("\n"):
                assert line.strip() in printed, f"line {block.line}: {line!r} not in\n{printed}"
    return done


def _run(block: Block, folder: Path) -> tuple[int, str]:
    if block.language in {"python", "py"}:
        return _run_python(block.text, folder)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def _run_python(text: str, folder: Path) -> tuple[int, str]:
    """In this process, since importing torch takes longer than most blocks."""
    out = io.StringIO()
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        exec(compile(text, "page", "exec"), {"__name__": "__main__"})
    for name in set(sys.modules) - before:  # files of this page; another may have the same names
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    return 0, out.getvalue()
