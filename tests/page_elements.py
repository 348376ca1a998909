"""Pages of the three states, taken apart into elements and text."""

from html.parser import HTMLParser

import report_pages
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.results.report import Report

STATES = {
    "pass": report_pages.passing,
    "fail": report_pages.failing,
    "partly": report_pages.partly,
}


VOID = {"meta", "link", "input", "br", "wbr"}


SCRIPT = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The elements of a page, its text, and whether every element is closed where it must be."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.folded: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.text.append(data.strip())
            if "details" in self._open:
                self.folded.append(data.strip())

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(k.rstrip("_")) == v for k, v in wanted.items())
        ]


def rendered(report: Report) -> str:
    return render_html(report, report_pages.manifest(report))


def states() -> dict[str, str]:
    """The three pages, by state."""
    return {name: rendered(make()) for name, make in STATES.items()}
