"""What the pages in ``docs/`` tell a reader to run is run, and links lead somewhere."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

import linattn_export.cli
import linattn_runtime_checks.cli
from doc_blocks import blocks, faults, run_page
from roots import ROOT

DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(DOCS)): path for path in sorted(DOCS.rglob("*.md"))}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
KINDS = {n: {b.kind for b in blocks(t) if b.action == "run"} for n, t in TEXTS.items()}
COMMANDS: dict[str, Any] = {
    "linattn-export": typer.main.get_command(linattn_export.cli.app),
    "linattn-check": typer.main.get_command(linattn_runtime_checks.cli.app),
}


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_what_is_done_with_it(name: str) -> None:
    assert list(faults(blocks(TEXTS[name]))) == []


@pytest.mark.parametrize("name", [name for name in PAGES if "" in KINDS[name]])
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path) -> None:
    assert run_page(blocks(TEXTS[name]), tmp_path) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAGES if "slow" in KINDS[name]])
def test_the_slow_blocks_of_a_page_run(name: str, tmp_path: Path) -> None:
    assert run_page(blocks(TEXTS[name]), tmp_path, "slow") > 0


@pytest.mark.references
@pytest.mark.parametrize("name", [name for name in PAGES if "references" in KINDS[name]])
def test_the_blocks_with_public_packages_run(name: str, tmp_path: Path) -> None:
    assert run_page(blocks(TEXTS[name]), tmp_path, "references") > 0


def commands(text: str) -> Iterator[list[str]]:
    """The calls of our commands in the blocks of a page."""
    for block in blocks(text):
        if block.language in {"sh", "bash", "console"}:
            for line in re.split(r"\n|&&|\|\|", block.text.replace("\\\n", " ")):
                words = shlex.split(line, comments=True)
                if words and Path(words[0]).name in COMMANDS:
                    yield [Path(words[0]).name, *words[1:]]


def parse(words: list[str]) -> None:
    """Raise click.ClickException unless the command takes these flags; nothing is run."""
    command, arguments = COMMANDS[words[0]], words[1:]
    if isinstance(command, click.Group) or hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(words[0], arguments, resilient_parsing=False)


@pytest.mark.parametrize("name", [*PAGES, "../README.md"])
def test_the_commands_of_a_page_have_flags_that_exist(name: str) -> None:
    for words in commands((DOCS / name).read_text(encoding="utf-8")):
        parse(words)


def test_a_flag_that_does_not_exist_would_be_seen() -> None:
    (words,) = commands("```sh\ncd x && linattn-check out --no-such-flag\n```\n")
    with pytest.raises(Exception, match="No such option: --no-such-flag"):
        parse(words)


def anchors(text: str) -> set[str]:
    """Those of the headings, as hosts and the site make them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", TEXTS[name]):
        if "://" not in target:
            path = (PAGES[name].parent / target).resolve() if target else PAGES[name]
            assert path.exists(), target
            assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), anchor


def test_every_page_is_in_the_navigation() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", site, re.MULTILINE)
    assert sorted(listed) == sorted(PAGES)


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        pytest.param("```sh\nls\n```\n", "no comment above it", id="no comment"),
        pytest.param("text\n```python\n1\n```\n", "no comment above it", id="text above"),
        pytest.param("<!-- not run: why -->\n```sh\nls\n```\n", "but why", id="no reason"),
        pytest.param("<!-- run: fast -->\n```sh\nls\n```\n", "what is 'fast'", id="word"),
        pytest.param("<!-- run -->\n```toml\na = 1\n```\n", "not run", id="language"),
        pytest.param("<!-- file -->\n```toml\na = 1\n```\n", "which file", id="file"),
    ],
)
def test_a_block_that_leaves_it_open_would_be_seen(page: str, fault: str) -> None:
    (found,) = faults(blocks(page))
    assert fault in found


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("<!-- run -->\n```sh\nfalse\n```\n", id="exit"),
        pytest.param("<!-- run: exit 3 -->\n```sh\nexit 4\n```\n", id="another exit"),
        pytest.param("<!-- run -->\n```sh\nfalse | true\n```\n", id="pipe"),
        pytest.param("<!-- run -->\n```python\nassert False\n```\n", id="python"),
        pytest.param(
            "<!-- run -->\n```sh\necho a\n```\n<!-- prints -->\n```text\na\nb\n```\n", id="prints"
        ),
    ],
)
def test_a_block_that_fails_would_be_seen(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_page(blocks(page), tmp_path, "slow")


def test_files_are_there_for_the_blocks_after_them(tmp_path: Path) -> None:
    page = (
        "<!-- file: page_model.py -->\n```python\nx = 7\n```\n"
        "<!-- run: slow -->\n```sh\ncat page_model.py\n```\n<!-- prints -->\n```text\nx = 7\n```\n"
        "<!-- run -->\n```python\nimport page_model\nprint(page_model.x)\n```\n"
        "<!-- prints -->\n```text\n7\n```\n"
    )
    assert run_page(blocks(page), tmp_path) == 1
    assert run_page(blocks(page), tmp_path, "slow") == 2
    assert "page_model" not in sys.modules


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "build_site.py"), str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"needs: pip install -e '.[docs]'\n{done.stdout}{done.stderr}"
    built = sorted(tmp_path.rglob("*.html"))
    assert len(built) > len(PAGES)
    loaded = r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//|<link[^>]+href="?(?:https?:)?//'
    assert not [path for path in built if re.search(loaded, path.read_text(encoding="utf-8"))]
