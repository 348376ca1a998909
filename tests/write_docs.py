"""Writes every document that is made from the code: ``python tests/write_docs.py``.

Codes, JSON Schemas, the methods' cards, the reference pages, and the cards in the navigation.
"""

import doc_codes
import doc_pages
import doc_schemas


def write() -> None:
    """Write what ``tests/project`` compares."""
    doc_codes.DOCUMENT.write_text(doc_codes.text(), encoding="utf-8")
    for name, model in doc_schemas.SCHEMAS.items():
        (doc_schemas.DOCS / name).write_text(doc_schemas.text(model), encoding="utf-8")
    for path, text in doc_pages.pages().items():
        (doc_pages.DOCS / path).parent.mkdir(exist_ok=True)
        (doc_pages.DOCS / path).write_text(text, encoding="utf-8")
    site = doc_pages.SITE.read_text(encoding="utf-8")
    before = site[: site.index(doc_pages.BEGIN) + len(doc_pages.BEGIN)]
    after = site[site.index(doc_pages.END) :]
    doc_pages.SITE.write_text(before + doc_pages.navigation() + after, encoding="utf-8")


if __name__ == "__main__":
    write()
