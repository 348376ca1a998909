"""``examples/page``: onnxruntime-web in Chromium tells languages as one types."""

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tools
from browser_scripts import CONTRASTS
from browsers import chromium
from folders import edit, flip
from golden_runs import EXAMPLES, LANGID, LANGID_PACK, example_module
from golden_runs import LANGID_LONGEST as LONGEST
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.verdict import compare

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

PAGE = EXAMPLES / "page"
LOGITS = """async (texts) => {
  const { Classifier } = await import("/model.mjs");
  const model = await Classifier.open(new URL("/model/", location), "langid");
  const found = [];
  for (const text of texts) found.push(Array.from(await model.logits(Uint8Array.from(text))));
  return found;
}"""

Open = Callable[..., "Page"]


@pytest.fixture
def folder(langid_folder: Path) -> Path:
    return langid_folder


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of the example's own server."""
    with example_module(PAGE / "serve.py").server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    tools.node_package(PAGE, "onnxruntime-web")
    with chromium() as opened:
        yield opened


@pytest.fixture
def show(browser: "Browser") -> Iterator[Open]:
    """Opens the page; at the end nothing may have been complained of or asked of others."""
    seen: dict[str, list[str]] = {"complaints": [], "requests": []}
    contexts = []

    def open_page(address: str, *, width: int = 1280, scheme: str = "light") -> "Page":
        options: dict[str, Any] = {
            "viewport": {"width": width, "height": 900}, "color_scheme": scheme,
        }  # fmt: skip
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen["complaints"].append(message.text))
        page.on("pageerror", lambda error: seen["complaints"].append(str(error)))
        page.on("request", lambda request: seen["requests"].append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert seen["complaints"] == []
    assert all(re.match(r"http://127\.0\.0\.1:\d+/|data:,", url) for url in seen["requests"])


def ready(page: "Page") -> "Page":
    from playwright.sync_api import expect

    expect(page.locator("#text")).to_be_enabled(timeout=60_000)
    return page


def says(page: "Page", pattern: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#status")).to_have_text(re.compile(pattern), timeout=20_000)


def bars(page: "Page") -> list[tuple[str, float, float]]:
    """Label, probability and the share of the bar that is filled."""
    script = """rows => rows.map((row) => {
      const [outer, inner] = [".bar", ".bar span"].map(
        (name) => row.querySelector(name).getBoundingClientRect().width);
      return [row.dataset.label, Number(row.dataset.probability), inner / outer];
    })"""
    return [tuple(row) for row in page.locator("#results li").evaluate_all(script)]


def test_the_logits_are_those_of_the_golden_pack(show: Open, folder: Path) -> None:
    judged = 0
    with open_reference(folder / LANGID_PACK) as pack:
        cases, texts, sizes = [], [], []
        for case in pack.index.cases:
            inputs = pack.inputs(case)
            masks = inputs["attention_mask"]
            starts = np.diff(masks.astype(np.int8), axis=1, prepend=0) == 1
            one_piece = bool(
                (starts.sum(axis=1) == 1).all()
            )  # a text has neither holes nor no bytes
            if case.hostile or case.batch > 3 or not one_piece:
                continue
            cases.append(case)
            sizes.append(case.batch)
            texts += [
                tokens[mask].tolist() for tokens, mask in zip(inputs["tokens"], masks, strict=True)
            ]
        with serving(folder) as address:
            logits = show(address).evaluate(LOGITS, texts)
        found = np.split(np.array(logits, dtype=np.float32), np.cumsum(sizes)[:-1])
        for case, output in zip(cases, found, strict=True):
            (expected,) = pack.outputs(case).values()
            verdict = compare(output, expected, pack.index.dtype, case.yardstick())
            assert verdict.passed, (case.name, verdict)
            output[0, 7] += 1e-3
            assert not compare(output, expected, pack.index.dtype, case.yardstick()).passed
            judged += case.family in ("normal", "right-padding", "left-padding")
    assert judged > 5


def test_bars_follow_what_is_typed(show: Open, folder: Path) -> None:
    text = "Bitte geben Sie eine gültige Adresse ein."
    model = example_module(EXAMPLES / "run_onnx.py").VerifiedModel(folder)
    with serving(folder) as address:
        page = ready(show(address))
        says(page, "^Type something")
        assert bars(page) == []
        page.locator("#text").press_sequentially(text[:5])
        says(page, rf"^5 of {LONGEST} bytes, [\d.]+ ms$")
        assert len(bars(page)) == 5
        page.locator("#text").press_sequentially(text[5:])
        says(page, rf"^{len(text.encode())} of {LONGEST} bytes, [\d.]+ ms$")
        found = bars(page)
        assert page.locator("#results .name").first.text_content() == "German"
    tokens = np.array([list(text.encode())])
    inputs = {"tokens": tokens, "attention_mask": np.ones(tokens.shape, dtype=np.bool_)}
    (logits,) = model(inputs)["output"].astype(np.float64)
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    order = np.argsort(-shares)[:5]
    assert [label for label, _, _ in found] == [model.about["labels"][place] for place in order]
    for (_, probability, filled), place in zip(found, order, strict=True):
        assert probability == pytest.approx(shares[place], abs=1e-5)
        assert filled == pytest.approx(shares[place], abs=0.01)


def test_the_sentences_to_try_are_told(show: Open, folder: Path) -> None:
    with serving(folder) as address:
        page = ready(show(address))
        buttons = page.locator("#samples button")
        assert buttons.count() == 6
        for place in range(buttons.count()):
            text = buttons.nth(place).text_content() or ""
            buttons.nth(place).click()
            says(page, rf"^{len(text.encode())} of {LONGEST} bytes")
            assert bars(page)[0][0] == buttons.nth(place).get_attribute("lang")


def test_a_longer_text_than_was_verified_is_refused_in_words(show: Open, folder: Path) -> None:
    with serving(folder) as address:
        page = ready(show(address))
        field = page.locator("#text")
        field.fill("é" * (LONGEST // 2))
        says(page, rf"^{LONGEST} of {LONGEST} bytes")
        assert len(bars(page)) == 5
        field.press("End")
        field.press("x")
        says(
            page,
            rf"^This text has {LONGEST + 1} bytes\. The model was verified up to {LONGEST}, "
            r"so it is not run on more: please take away 1 byte\.$",
        )
        assert bars(page) == []
        assert field.get_attribute("aria-invalid") == "true"
        field.press("Backspace")
        says(page, rf"^{LONGEST} of {LONGEST} bytes")
        assert len(bars(page)) == 5


def test_the_newest_text_is_the_one_that_is_shown(show: Open, folder: Path) -> None:
    quick = """(texts) => {
      const field = document.getElementById("text");
      for (const text of texts) {
        field.value = text;
        field.dispatchEvent(new Event("input"));
      }
    }"""
    with serving(folder) as address:
        page = ready(show(address))
        page.evaluate(quick, ["Bitte geben Sie", "Este campo", "Введіть правильну дату."])
        says(page, rf"^{len('Введіть правильну дату.'.encode())} of ")
        assert bars(page)[0][0] == "uk"


def broken(folder: Path, target: Path, fault: str) -> Path:
    shutil.copytree(folder, target)
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "verdict": lambda m: m["artifacts"][0].update(verdict="PARITY"),
        "labels": lambda m: m["artifacts"][0]["labels"].pop(),
        "range": lambda m: [axis.update(verified=None) for axis in m["artifacts"][0]["axes"]],
    }
    if fault == "bytes":
        flip(target / LANGID / "model.onnx")
    else:
        edit(target, changes[fault])
    return target


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("bytes", rf"{LANGID}/model\.onnx has SHA-256 \w+, the manifest says"),
        ("verdict", f"{LANGID} is PARITY, not PASS"),
        ("labels", f"{LANGID} has 41 outputs and 40 labels"),
        ("range", "no size of sequence was verified"),
    ],
)
def test_a_model_that_nobody_vouches_for_is_refused(
    show: Open, folder: Path, tmp_path: Path, fault: str, message: str
) -> None:
    with serving(broken(folder, tmp_path / "broken", fault)) as address:
        page = show(address)
        says(page, rf"^The model cannot be used\. {message}")
        assert page.locator("#text").is_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_can_be_read(show: Open, folder: Path, width: int, scheme: str) -> None:
    with serving(folder) as address:
        page = ready(show(address, width=width, scheme=scheme))
        page.locator("#samples button").first.click()
        says(page, " ms$")
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 20
        assert [found for found in contrasts if found[0] < 4.5] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
