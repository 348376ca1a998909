"""``report.html`` as a browser shows it: Chromium, without a network."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import report_pages
from browser_scripts import BACKGROUND, CONTRASTS, PLOTS
from browsers import chromium
from linattn_runtime_checks.report.html import render_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page


pytestmark = pytest.mark.slow


STATES = {
    "pass": report_pages.passing,
    "fail": report_pages.failing,
    "partly": report_pages.partly,
}


PHONE, DESKTOP, PAPER = 360, 1280, 718  # the last is A4 between its margins


Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in STATES.items():
        shown = make()
        text = render_html(shown, report_pages.manifest(shown))
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in STATES}


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def show(browser: "Browser", files: dict[str, Path]) -> Iterator[Open]:
    """Opens the page of a state; at the end nothing may have been complained of or asked for."""
    complaints: list[str] = []
    requests: list[str] = []
    contexts = []

    def open_page(state: str, *, width: int = DESKTOP, scheme: str = "light",
                  script: bool = True) -> "Page":  # fmt: skip
        options: dict[str, Any] = {
            "viewport": {"width": width, "height": 900}, "color_scheme": scheme,
            "java_script_enabled": script, "offline": True,
        }  # fmt: skip
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(files[state].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    wanted = {path.as_uri() for path in files.values()} | {"data:,"}
    assert set(requests) <= wanted


def visible_rows(page: "Page", table: str) -> list[str]:
    rows = page.locator(f"#table-{table} tbody tr:visible")
    return rows.evaluate_all("rows => rows.map(row => row.cells[0].textContent)")  # type: ignore[no-any-return]


def column(page: "Page", table: str, heading: str) -> list[str]:
    """The texts of one column, from above."""
    script = """([name, heading]) => {
      const table = document.querySelector(`#table-${name} table`);
      const at = Array.from(table.tHead.rows[0].cells).findIndex(
        (cell) => cell.textContent.trim() === heading);
      return Array.from(table.tBodies[0].rows, (row) => row.cells[at].textContent.trim());
    }"""
    return page.evaluate(script, [table, heading])  # type: ignore[no-any-return]


def heading(page: "Page", table: str, text: str) -> "Locator":
    pattern = re.compile(rf"^\s*{re.escape(text)}\s*$")
    return page.locator(f"#table-{table} th[scope=col]").filter(has_text=pattern)


@pytest.mark.parametrize("state", STATES)
def test_every_plot_is_drawn(show: Open, state: str) -> None:
    plots = show(state).evaluate(PLOTS)
    expected = {"pass": 3 * 5 + 1, "fail": 2 + 3 - 1 + 1, "partly": 2 * 2}
    assert len(plots) == expected[state], [plot["label"] for plot in plots]
    for plot in plots:
        assert min(plot["box"]) > 30, plot  # the least: one bar
        assert plot["parts"], plot
        for part in plot["parts"]:
            assert max(part["box"]) > 20, plot
            paint = part["stroke"] if part["kind"] == "curve" else part["fill"]
            assert paint.startswith("rgb("), plot
            assert paint != "rgb(0, 0, 0)", plot
            if part["kind"] == "curve":
                assert part["marks"] == len(report_pages.LENGTHS), plot


def test_the_curves_of_a_plot_have_colours_and_places_of_their_own(show: Open) -> None:
    plots = show("pass").evaluate(PLOTS)
    overview = next(plot for plot in plots if "all methods" in plot["label"])
    assert len({part["stroke"] for part in overview["parts"]}) == 3
    # Softmax grows as the square: its curve is twice as high as that of the others.
    heights = [part["box"][1] for part in overview["parts"]]
    assert heights[-1] > 1.7 * heights[0]
    sizes = next(plot for plot in plots if plot["label"].startswith("Sizes"))
    assert len(sizes["parts"]) == 6


@pytest.mark.parametrize("table", ["artifacts", "latency"])
def test_the_filter_leaves_the_rows_that_hold_every_word(show: Open, table: str) -> None:
    page = show("pass")
    everything = visible_rows(page, table)
    field = page.locator(f"#table-{table} input")
    output = page.locator(f"#table-{table} output")
    assert output.text_content() == f"{len(everything)} of {len(everything)} rows"
    field.fill("ELU dynamic")
    left = visible_rows(page, table)
    assert 0 < len(left) < len(everything)
    assert all("elu" in row for row in left)
    assert output.text_content() == f"{len(left)} of {len(everything)} rows"
    field.fill("no such thing")
    assert visible_rows(page, table) == []
    field.fill("")
    assert visible_rows(page, table) == everything


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_heading_sorts_up_and_then_down(show: Open, by: str) -> None:
    page = show("pass")

    def press(text: str) -> None:
        button = heading(page, "latency", text).locator("button")
        if by == "mouse":
            button.click()
        else:
            button.focus()
            page.keyboard.press("Enter")

    assert heading(page, "latency", "p50 ms").get_attribute("aria-sort") == "none"
    press("p50 ms")
    up = [float(text) for text in column(page, "latency", "p50 ms")]
    assert len(set(up)) > 3
    assert up == sorted(up)
    assert heading(page, "latency", "p50 ms").get_attribute("aria-sort") == "ascending"
    press("p50 ms")
    down = [float(text) for text in column(page, "latency", "p50 ms")]
    assert down == sorted(up, reverse=True)
    assert heading(page, "latency", "p50 ms").get_attribute("aria-sort") == "descending"
    press("/ softmax")
    assert heading(page, "latency", "p50 ms").get_attribute("aria-sort") == "none"
    ratios = [t.removeprefix("inconclusive ") for t in column(page, "latency", "/ softmax")]
    numbers = [float(text) for text in ratios if text != "-"]
    assert ratios[: len(numbers)] == [text for text in ratios if text != "-"]
    assert numbers == sorted(numbers)


def test_the_sort_buttons_are_reached_by_the_tabulator_key(show: Open) -> None:
    page = show("pass")
    page.locator("#table-artifacts input").focus()
    reached = []
    for _ in range(4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert "artifact" in reached
    assert "size" in reached


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_page_never_scrolls_sideways(show: Open, state: str, width: int) -> None:
    page = show(state, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    right = "Math.max(...Array.from(document.querySelectorAll('main > *, main figure, .scroll'),"
    assert page.evaluate(f"{right} e => e.getBoundingClientRect().right))") <= width
    inner = "document.querySelector('#table-artifacts .scroll')"
    if width == PHONE:
        assert page.evaluate(f"{inner}.scrollWidth > {inner}.clientWidth")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(show: Open, state: str, scheme: str) -> None:
    page = show(state, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 200
    assert [found for found in contrasts if found[0] < 4.5] == []


def test_the_dark_scheme_is_dark(show: Open) -> None:
    light, dark = (show("pass", scheme=scheme) for scheme in ("light", "dark"))
    assert light.evaluate(BACKGROUND) == "rgb(247, 248, 249)"
    assert dark.evaluate(BACKGROUND) == "rgb(20, 24, 28)"
    strokes = [page.evaluate(PLOTS)[0]["parts"][0]["stroke"] for page in (light, dark)]
    assert strokes[0] != strokes[1]


@pytest.mark.parametrize("state", STATES)
def test_on_paper(show: Open, state: str, tmp_path: Path) -> None:
    page = show(state, width=PAPER, scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
    for hidden in ("nav", ".tools", "#loading details"):
        assert page.locator(f"{hidden}:visible").count() == 0
    assert page.locator("#loading .paper").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER
    wide = "Array.from(document.querySelectorAll('table')).filter(t => t.scrollWidth > innerWidth)"
    assert page.evaluate(f"{wide}.length") == 0
    folded = page.locator("details.print-open li")
    for index in range(folded.count()):
        box = folded.nth(index).bounding_box()
        assert box is not None
        assert box["height"] > 5
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.print-open:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.print-open[open]").count() == 0
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF")


def test_without_the_script_the_tables_are_complete(show: Open, files: dict[str, Path]) -> None:
    page = show("pass", script=False)
    rows = page.locator("#table-artifacts tbody tr:visible")
    assert rows.count() == len(report_pages.passing().artifacts)
    assert page.locator("input:visible, button:visible").count() == 0


@pytest.mark.parametrize(
    ("state", "word"), [("pass", "PASS"), ("fail", "EXPORT"), ("partly", "PASS")]
)
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_verdict_is_seen_without_scrolling(
    show: Open, state: str, word: str, width: int
) -> None:
    title = show(state, width=width).locator("h1")
    assert title.text_content() == word
    box = title.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 300
    icon = title.locator("svg").bounding_box()
    assert icon is not None
    assert min(icon["width"], icon["height"]) > 20
