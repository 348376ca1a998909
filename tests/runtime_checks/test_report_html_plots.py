"""The plots, the parity map and the numbers of ``report.html``."""

import math
import re
from typing import Any

import pytest

import report_pages
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.report.html.curves import BASELINE, kind_of
from linattn_runtime_checks.report.html.figures import round_values
from linattn_runtime_checks.report.html.latency_rows import ratio_text
from linattn_runtime_checks.report.html.parity_map import map_cell
from linattn_runtime_checks.report.html.svg import PALETTE
from linattn_runtime_checks.report.html.values import short, sort_key, worst
from page_elements import STATES, rendered


def test_a_report_without_latency_says_so_and_has_the_other_plots(pages: dict[str, str]) -> None:
    assert "Latency was not measured" in pages["partly"]
    assert "Latency on" not in pages["partly"]
    assert 'id="all-latency"' not in pages["partly"]
    assert "Peak memory on ort-cpu" in pages["partly"]
    assert "Size of the files" in pages["partly"]


def test_one_length_is_drawn_and_not_fitted() -> None:
    made = [report_pages.artifact(method) for method in ("elu", "softmax")]
    for artifact in made:
        artifact.runtimes[0].peak_bytes = {64: 4096}
        artifact.runtimes[0].memory_exponent = None
    html = rendered(report_pages.report(made, latency=report_pages.latency(("elu",), (64,))))
    assert "1 length measured: too few to fit a growth." in html
    assert "elu is not clearly faster than softmax within the lengths measured." in html
    assert 'class="curve"' in html


def test_times_that_no_logarithm_takes_are_left_out() -> None:
    table = report_pages.latency(("elu",))
    table.results[0].p50_ms = 0.0
    table.results[1].p50_ms = math.inf
    html = rendered(report_pages.report([report_pages.artifact()], latency=table))
    assert 'class="curve"' in html
    for result in table.results:
        result.p50_ms = math.nan
    assert "nan" in rendered(report_pages.report([report_pages.artifact()], latency=table))


def test_captions_tell_growth_and_crossover(pages: dict[str, str]) -> None:
    caption = (
        "elu grows as N^1.00 (95 %: 0.90 to 1.10, 64 to 4096 tokens); softmax grows as N^2.00 "
        "(95 %: 1.90 to 2.10, 64 to 4096 tokens). elu is faster than softmax from 256 tokens."
    )
    assert f'<figcaption class="note">{caption}</figcaption>' in pages["pass"]
    assert 'class="crossover"' in pages["pass"]
    assert "faster from 256" in pages["pass"]


def test_curves_differ_without_colour(pages: dict[str, str]) -> None:
    start = pages["pass"].index("Latency on ort-cpu")
    plot = pages["pass"][start : pages["pass"].index("</svg>", start)]
    lines = re.findall(r'class="curve"><path [^>]*style="([^"]*)"', plot)
    dashes = {re.sub(r"stroke: var[^;]*;?", "", line) for line in lines}
    assert len(lines) == 3
    assert len(dashes) == 3


@pytest.mark.parametrize("state", STATES)
def test_every_colour_of_a_plot_follows_the_scheme(pages: dict[str, str], state: str) -> None:
    for plot in re.findall(r'<svg [^>]*class="plot".*?</svg>', pages[state], re.DOTALL):
        assert "var(--" in plot
        assert not re.findall(r"(?:fill|stroke): ?#[0-9a-f]{3,}", plot)
    for name in PALETTE:
        # In both schemes and on paper.
        assert pages[state].count(f"--{name}: ") == 3


@pytest.mark.parametrize(
    ("cases", "text", "look"),
    [
        ([], "", "blank"),
        ([{"multiple": 1.02}], "1.02", "low"),
        ([{"multiple": 1.5}, {"multiple": 1.9}], "1.90", "middle"),
        ([{"multiple": 4.0}], "4.00", "high"),
        ([{"multiple": 4.01, "code": Code.PARITY_EXCEEDED}], "✕ 4.01", "fail"),
        ([{"multiple": math.nan, "code": Code.PARITY_EXCEEDED}, {}], "✕ nan", "fail"),
        ([{}, {"multiple": math.inf, "code": Code.PARITY_EXCEEDED}], "✕ inf", "fail"),
        ([{"multiple": 9.0}], "✕ 9.00", "fail"),
        ([{"multiple": None, "code": Code.RUN_FAILED}], "✕ run_failed", "fail"),
        ([{"multiple": 1.0, "code": Code.ZERO_ROW_NOT_ZERO}], "✕ zero_row_not_zero", "fail"),
        ([{"multiple": 9.0, "code": Code.PRECISION_LOST, "rounding": 0.12}], "lost 12 %", "lost"),
        ([{"code": Code.PRECISION_LOST, "rounding": None}], "not finite", "lost"),
        ([{"code": Code.INCONCLUSIVE}], "? inconclusive", "lost"),
        ([{"multiple": 9.0, "code": Code.RUNTIME_INEXACT}], "? runtime_inexact", "lost"),
        ([{"multiple": None}], "ok", "low"),
    ],
)
def test_cells_of_the_parity_map(cases: list[dict[str, Any]], text: str, look: str) -> None:
    cell = map_cell([report_pages.case(**fields) for fields in cases])
    assert (cell.text, cell.look) == (text, look)


def test_the_parity_map_has_a_row_for_every_artifact(pages: dict[str, str]) -> None:
    html = pages["fail"]
    start = html.index('aria-label="Parity of layer/elu"')
    table = html[start : html.index("</table>", start)]
    assert "✕ 8324" in table
    assert "lost 12 %" in table
    assert "✕ nonfinite_output" in table
    start = html.index('aria-label="Parity of layer/softmax"')
    row = html[html.index('<th scope="row">pt2/dynamic', start) : html.index("</table>", start)]
    assert re.findall(r'<td class="(\w+)"[^>]*></td>', row) == ["blank"] * 3


def test_a_ratio_is_inconclusive_where_the_intervals_meet() -> None:
    one = report_pages.timed("elu", "ort-cpu", 64, 1.0)
    assert ratio_text(one, report_pages.timed(BASELINE, "ort-cpu", 64, 1.05)) == "inconclusive 0.95"
    assert ratio_text(one, report_pages.timed(BASELINE, "ort-cpu", 64, 2.0)) == "0.50"
    assert ratio_text(one, None) == "-"
    assert ratio_text(one, one) == "-"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("1.0 MiB", 1024**2), ("512 B", 512), ("263,168", 263168), ("0.46 / 0.55", 0.46),
        ("1..4096 (25)", 1), ("5.9e-07", 5.9e-07), ("inf", math.inf), ("256 tokens", 256),
        ("inconclusive 1.06", 1.06), ("n512", None), ("PASS", None), ("-", None),
        ("infinite", None), ("dynamic", None),
    ],
)  # fmt: skip
def test_sort_keys(text: str, key: float | None) -> None:
    assert sort_key(text) == key


def test_values() -> None:
    assert worst([None, 1.0, 3.0]) == 3.0
    assert math.isnan(worst([1.0, math.nan, math.inf]) or 0.0)
    assert worst([None]) is None
    written = [short(v) for v in (0.0, 0.456, 31.72, 8324.4, 123456.0, 1e-4, math.inf)]
    assert written == ["0", "0.46", "31.7", "8324", "1.2e+05", "1.0e-04", "inf"]
    kinds = {
        "dynamic": "dynamic",
        "dynamic-fp16": "dynamic-fp16",
        "n512": "fixed",
        "n512-fp16": "fixed-fp16",
        "prefill": "prefill",
        "prefill-n64-ms": "prefill-fixed-ms",
        "step-ms": "step-ms",
    }
    assert {variant: kind_of(variant) for variant in kinds} == kinds


@pytest.mark.parametrize(("low", "high"), [(0.3, 0.5), (0.9, 1.1), (1e-3, 1e6), (5.0, 5000.0)])
@pytest.mark.parametrize("base", [2, 10])
def test_ticks_are_few_and_inside(low: float, high: float, base: int) -> None:
    ticks = round_values(low, high, base=base)
    assert len(ticks) <= 7
    assert all(low <= tick <= high for tick in ticks)
    assert ticks == sorted(ticks)


def test_every_exit_code_has_a_meaning() -> None:
    for code in ExitCode:
        shown = report_pages.report([])
        shown.exit_code, shown.verdict = code, code.name
        assert f"<span>{code.name}</span>" in render_html(shown, None)
