"""Markdown of the pages that are made from tables."""

import re
from collections.abc import Sequence

NOTE = "<!-- Written by python tests/write_docs.py -->"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def sentence(text: str) -> str:
    symbol = re.match(r"[b-z]\b", text)  # n is not N
    return words(text if symbol else text[:1].upper() + text[1:])


def words(text: str) -> str:
    """Text of the product as Markdown, one line a paragraph; ``code`` becomes `code`."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    text = "\n\n".join(paragraphs).replace("``", "`")
    return re.sub(r"([*<])", r"\\\1", text)
