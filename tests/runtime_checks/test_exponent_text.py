"""When a fitted power is a statement, and what is printed where it is none."""

import io
import math
import re

import pytest
from rich.console import Console

from linattn_runtime_checks.cost.exponent import NOT_BOUNDED, Exponent, cell, power, sentence
from linattn_runtime_checks.report import markdown, summary
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.report.tables import cost_table
from linattn_runtime_checks.report.terminal import draw
from linattn_runtime_checks.results.report import Report
from report_pages import artifact, latency, manifest, report


@pytest.mark.parametrize(
    ("low", "high", "bounded"),
    [(0.9, 1.1, True), (0.5, 1.49, True), (-0.2, 2.15, False), (1.0, 2.0, False),
     (math.nan, math.nan, False), (-math.inf, math.inf, False)],
)  # fmt: skip
def test_an_interval_that_holds_two_powers_is_no_statement(
    low: float, high: float, bounded: bool
) -> None:
    found = Exponent(value=(low + high) / 2, low=low, high=high, lengths=[1, 2, 4])
    assert found.bounded is bounded
    assert (NOT_BOUNDED not in cell(found)) is bounded
    assert (NOT_BOUNDED not in sentence(found)) is bounded
    assert bool(power(found)) is bounded


def loose(document: Report) -> None:
    """Give every exponent an interval as a busy machine and three lengths give one."""
    exponent = Exponent(value=0.97, low=-0.20, high=2.15, lengths=[512, 1024, 4096])
    for made in document.artifacts:
        for result in made.runtimes:
            result.memory_exponent = exponent
    assert document.latency is not None
    document.latency.exponents = dict.fromkeys(document.latency.exponents, exponent)


def test_no_renderer_prints_a_power_that_was_not_measured() -> None:
    """Terminal, markdown, page, summary: none of them has the numbers, and each table says why."""
    methods = ("elu", "softmax")
    document = report([artifact(method) for method in methods], latency=latency(methods))
    loose(document)
    console = Console(width=200, record=True, file=io.StringIO())
    table = cost_table(document)
    assert table is not None
    console.print(draw(table))
    texts = {
        "terminal": console.export_text(),
        "markdown": markdown.render(document),
        "page": render_html(document, manifest(document)),
        "summary": summary.render(document),
    }
    for name, text in texts.items():
        assert not re.search(r"0\.97|-0\.20|2\.15", text), name
        assert "N^" not in text, name
    for name in ("terminal", "markdown", "page"):
        assert texts[name].count(NOT_BOUNDED) >= 4, "memory and latency of two methods"
    assert "elu: growth not measured well enough (512 to 4096 tokens)" in texts["page"]
