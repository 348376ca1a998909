"""``report.html`` as a document: what comes where, what is inert, what stays whole."""

import base64
import hashlib
import math
import os
import re
import subprocess
import sys

import pytest

import report_pages
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import EnvironmentProblem
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.report.html.verdict import SHOWN
from linattn_runtime_checks.results.report import Finding, Report
from page_elements import SCRIPT, STATES, Page, rendered
from roots import ROOT


@pytest.mark.parametrize(
    ("state", "word", "look", "shape"),
    [
        ("pass", "PASS", "good", "M7 12.5l3.5 3.5L17 9"),
        ("fail", "EXPORT", "bad", "M8.5 8.5l7 7m0-7l-7 7"),
        ("partly", "PASS", "good", "M7 12.5l3.5 3.5L17 9"),
    ],
)
def test_the_verdict_comes_first_in_word_and_shape(
    pages: dict[str, str], state: str, word: str, look: str, shape: str
) -> None:
    html = pages[state]
    header = html[html.index("<header") : html.index("</header>")]
    assert f'class="verdict {look}"' in header
    assert f"<span>{word}</span>" in header
    assert shape in header
    assert html.index("<body>") < html.index("<header") < html.index("<main>")


def test_an_unverified_report_has_a_look_of_its_own() -> None:
    html = rendered(report_pages.report([report_pages.artifact(judged=False)]))
    assert 'class="verdict unsure"' in html
    assert "<span>UNVERIFIED</span>" in html
    assert "No runtime here compared these artifacts." in html


def test_sections_come_in_the_promised_order(pages: dict[str, str]) -> None:
    places = [
        "<h1>", 'class="counts"', 'id="findings"', "parity_exceeded", "first departs: onnx",
        "Not used, and why", 'id="model-0"', 'id="all-artifacts"', 'id="all-latency"',
        'id="environment"', 'id="loading"',
    ]  # fmt: skip
    found = [pages["fail"].index(place) for place in places]
    assert found == sorted(found)


def test_counts(pages: dict[str, str]) -> None:
    page = Page(pages["fail"])
    words = [text for text in page.text if text]
    counts = {words[words.index(name)]: words[words.index(name) + 1]
              for name in ("artifacts", "pass", "fail", "not judged", "time")}  # fmt: skip
    assert counts == {"artifacts": "3", "pass": "1", "fail": "1", "not judged": "1", "time": "12 s"}


@pytest.mark.parametrize("state", STATES)
def test_a_page_is_well_formed_and_its_ids_are_unique(pages: dict[str, str], state: str) -> None:
    page = Page(pages[state])
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    referred = {
        attributes["href"][1:]
        for _, attributes in page.elements
        if attributes.get("href", "").startswith("#")
    } | set(re.findall(r"url\(#([^)]+)\)", pages[state]))
    assert referred
    assert referred <= set(ids)


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_fetched(pages: dict[str, str], state: str) -> None:
    page = Page(pages[state])
    assert "://" not in pages[state]
    assert "@import" not in pages[state]
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            if name in attributes:
                assert attributes[name].startswith(("#", "data:")), (tag, attributes)
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", pages[state]))
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none';")


def test_the_policy_allows_the_one_script_and_no_other(pages: dict[str, str]) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", pages["pass"], re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in pages["pass"] or (
        f"script-src 'sha256-{digest}'" in pages["pass"]
    )


def test_names_cannot_become_elements() -> None:
    finding = Finding.of(Code.RUN_FAILED, f"it says {SCRIPT}", check="parity")
    shown = report_pages.report(
        [
            report_pages.artifact(f"elu{SCRIPT}", model=SCRIPT, kind=kind, findings=(finding,),
                                  cases=[report_pages.case(f"family{SCRIPT}", case=SCRIPT)])
            for kind in report_pages.SUFFIXES
        ],
        environment={SCRIPT: SCRIPT, "$x$": "\x00"},
        left_out={SCRIPT: SCRIPT},
        latency=report_pages.latency((f"elu{SCRIPT}", "softmax")),
    )  # fmt: skip
    for artifact in shown.artifacts:
        artifact.runtimes[0].blame = SCRIPT
    assert shown.latency is not None
    for result in shown.latency.results:
        result.model = SCRIPT
    names = (f'"><img onerror=alert(1) {SCRIPT}', "mask")
    html = render_html(shown, report_pages.manifest(shown, names=names))
    page = Page(html)
    assert len(page.all("script")) == 1
    assert SCRIPT not in html
    assert not page.all("img")
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert any(SCRIPT in text for text in page.text)
    assert len(page.all("svg", class_="plot")) == 5


def test_odd_names_are_drawn_as_they_are() -> None:
    shown = report_pages.report(
        [report_pages.artifact("$\\frac{1}{2}$\x01"), report_pages.artifact("注意")]
    )
    html = render_html(shown, None)
    assert "peak memory" in html
    assert ">$\\frac{1}{2}$?, N^1.00<" in html
    assert ">注意, N^1.00<" in html


def test_the_same_report_gives_the_same_bytes(pages: dict[str, str]) -> None:
    assert rendered(report_pages.passing()) == pages["pass"]
    program = (
        "import sys; sys.path.insert(0, 'tests'); import report_pages as r; "
        "from linattn_runtime_checks.report.html import render_html; p = r.passing(); "
        "sys.stdout.buffer.write(render_html(p, r.manifest(p)).encode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True,
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert done.stdout.decode() == pages["pass"]


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_missing_package_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EnvironmentProblem, match=rf"needs {package}.*pip install 'linattn\[rep"):
        rendered(report_pages.partly())


def test_importing_the_renderer_imports_neither_package() -> None:
    program = (
        "import sys, linattn_runtime_checks.report.html; "
        "print([name for name in ('matplotlib', 'jinja2') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_nan_and_infinity_survive_the_json_and_are_shown() -> None:
    cases = [report_pages.case(code=Code.PARITY_EXCEEDED, multiple=math.inf),
             report_pages.case("zero-rows", Code.PARITY_EXCEEDED, math.nan)]  # fmt: skip
    finding = Finding.of(Code.PARITY_EXCEEDED, "wrong", check="parity")
    shown = report_pages.report([report_pages.artifact(cases=cases, findings=(finding,))])
    again = Report.model_validate_json(shown.model_dump_json())
    html = rendered(again)
    assert "✕ inf" in html
    assert "✕ nan" in html
    assert "<dd>nan</dd>" in html


def test_many_findings_do_not_hide_the_verdict() -> None:
    findings = [
        Finding.of(Code.FILE_DAMAGED, f"file number {number}", check="parity")
        for number in range(200)
    ]
    page = Page(rendered(report_pages.report([report_pages.artifact()], findings=findings)))
    told = [text for text in page.text if text.startswith("file number")]
    folded = [text for text in page.folded if text.startswith("file number")]
    assert len(told) == 200
    assert len(folded) == 200 - SHOWN
    assert f"{200 - SHOWN} more" in page.text


def test_notes_are_folded_and_counted(pages: dict[str, str]) -> None:
    page = Page(pages["pass"])
    assert "Nothing wrong was found." in page.text
    assert "Notes, which fail nothing: 3 cost_unknown" in page.folded
    assert not [t for t in page.text if "64 may be a width" in t and t not in page.folded]


def test_what_was_not_used_has_its_reason(pages: dict[str, str]) -> None:
    page = Page(pages["partly"])
    assert "torchscript: torch is not installed; run: pip install 'linattn[export]'" in page.text
    assert page.text.count("artifacts not judged") == 2
    assert page.text.count("1 of 3 pass, 2 not judged") == 2


def test_tables_are_complete_without_the_script(pages: dict[str, str]) -> None:
    shown = report_pages.passing()
    page = Page(pages["pass"])
    assert not page.all("input")
    assert not page.all("button")
    for artifact in shown.artifacts:
        assert artifact.id in page.text
    assert len(page.all("table", **{"data-tools": "Artifacts"})) == 1
    assert len(page.all("table", **{"data-tools": "Latency"})) == 1
    assert "inconclusive 1.00" in page.text
    assert "0.38 to 0.42" in page.text


def test_the_default_folder_stays_small() -> None:
    methods = ("softmax", "efficient", "elu", "relu", "taylor", "linformer")
    made = [
        report_pages.artifact(method, kind=kind, variant=variant)
        for method in methods
        for kind in report_pages.SUFFIXES
        for variant in ("dynamic", "n128", "n512", "n1024")
    ]
    table = report_pages.latency(methods)
    for runtime in ("torchscript", "pt2", "eager"):
        table.results += [report_pages.timed(r.method, runtime, r.sequence, r.p50_ms)
                          for r in table.results if r.runtime == "ort-cpu"]  # fmt: skip
    html = rendered(report_pages.report(made, latency=table))
    assert len(html.encode()) < 1_500_000
