"""The pages that are made from tables say what the tables say."""

import pytest

from doc_pages import BEGIN, DOCS, END, SITE, navigation, pages
from linattn import NAMES, record_of

PAGES = pages()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_that_of_the_tables(path: str) -> None:
    written = (DOCS / path).read_text(encoding="utf-8")
    assert written == PAGES[path], "run: python tests/write_docs.py"


def test_the_navigation_names_every_card() -> None:
    text = SITE.read_text(encoding="utf-8")
    listed = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert listed == navigation(), "run: python tests/write_docs.py"


def test_there_is_a_card_for_every_method_and_no_other() -> None:
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == {*NAMES, "index"}


@pytest.mark.parametrize("name", NAMES)
def test_a_method_says_when_to_choose_it(name: str) -> None:
    when = record_of(name).when
    assert when.endswith("."), f"the record of {name} lacks `when`, or its last full stop"
    assert len(when.split()) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_a_card_holds_what_it_promises(name: str) -> None:
    card = PAGES[f"methods/{name}.md"]
    definition = card.split("## Definition\n\n```text\n")[1].split("\n```")[0]
    assert "=" in definition, "the docstring of the method's file holds no indented formula"
    assert "**Source.**" in card
    assert card.split("## Cost\n\n")[1].startswith("O("), "the docstring has no line `Cost: O(..)`"
