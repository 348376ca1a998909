import base64
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import report_pages
from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.errors import EnvironmentProblem, ExitCode
from linattn_runtime_checks.manifest import Manifest, read
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.report.html.curves import BASELINE, kind_of
from linattn_runtime_checks.report.html.figures import round_values
from linattn_runtime_checks.report.html.latency_rows import ratio_text
from linattn_runtime_checks.report.html.loading import snippets
from linattn_runtime_checks.report.html.parity_map import map_cell
from linattn_runtime_checks.report.html.svg import PALETTE
from linattn_runtime_checks.report.html.values import short, sort_key, worst
from linattn_runtime_checks.report.html.verdict import SHOWN
from linattn_runtime_checks.report.model import Finding, Report

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


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: rendered(make()) for name, make in STATES.items()}


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
    finding = Finding.of(Code.RUN_FAILED, f"it says {SCRIPT}")
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
        cwd=Path(__file__).parents[1], env={**os.environ, "PYTHONHASHSEED": "7"},
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


def test_nan_and_infinity_survive_the_json_and_are_shown() -> None:
    cases = [report_pages.case(code=Code.PARITY_EXCEEDED, multiple=math.inf),
             report_pages.case("zero-rows", Code.PARITY_EXCEEDED, math.nan)]  # fmt: skip
    finding = Finding.of(Code.PARITY_EXCEEDED, "wrong")
    shown = report_pages.report([report_pages.artifact(cases=cases, findings=(finding,))])
    again = Report.model_validate_json(shown.model_dump_json())
    html = rendered(again)
    assert "✕ inf" in html
    assert "✕ nan" in html
    assert "<dd>nan</dd>" in html


def test_many_findings_do_not_hide_the_verdict() -> None:
    findings = [Finding.of(Code.FILE_DAMAGED, f"file number {number}") for number in range(200)]
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


def test_a_ratio_is_inconclusive_where_the_intervals_meet() -> None:
    one = report_pages.timed("elu", "ort-cpu", 64, 1.0)
    assert ratio_text(one, report_pages.timed(BASELINE, "ort-cpu", 64, 1.05)) == "inconclusive 0.95"
    assert ratio_text(one, report_pages.timed(BASELINE, "ort-cpu", 64, 2.0)) == "0.50"
    assert ratio_text(one, None) == "-"
    assert ratio_text(one, one) == "-"


def commands(html: str, name: str) -> str:
    start = html.index(f"<summary>{name}</summary>")
    return html[start : html.index("</details>", start)]


def test_commands_have_the_names_types_and_shapes_of_the_artifact() -> None:
    shown = report_pages.passing()
    manifest = report_pages.manifest(shown, names=("hidden_states", "attention_mask"))
    by_id = {artifact.id: artifact for artifact in manifest.artifacts}
    python, cpp, javascript = snippets(by_id["layer/elu/onnx/dynamic"])
    assert '"hidden_states": np.zeros((1, 128, 256), dtype=np.float32),' in python.code
    assert '"attention_mask": np.ones((1, 128), dtype=np.bool_),' in python.code
    assert 'ORT_TSTR("layer/elu/onnx/dynamic/model.onnx")' in cpp.code
    assert "std::make_unique<bool[]>(1 * 128)" in cpp.code
    assert "std::fill_n(attention_mask.get(), 1 * 128, true);" in cpp.code
    assert 'new ort.Tensor("bool", new Uint8Array(1 * 128).fill(1), [1, 128])' in javascript.code
    python, cpp = snippets(by_id["layer/elu/torchscript/n64"])
    assert 'torch.jit.load("layer/elu/torchscript/n64/model.pt")' in python.code
    assert "torch.zeros((1, 64, 256), dtype=torch.float32),  # hidden_states" in python.code
    assert "torch::zeros({1, 64, 256}, torch::kFloat32)" in cpp.code
    python, cpp = snippets(by_id["layer/elu/pt2/dynamic"])
    assert 'torch.export.load("layer/elu/pt2/dynamic/model.pt2")' in python.code
    assert not cpp.code
    assert "no loader" in cpp.needs


def test_every_artifact_has_commands_and_none_without_a_manifest(pages: dict[str, str]) -> None:
    shown = report_pages.passing()
    for artifact in shown.artifacts:
        text = commands(pages["pass"], artifact.id)
        assert ("JavaScript" in text) == (artifact.format == "onnx")
        assert "<h4>Python" in text
    assert 'id="loading"' not in render_html(shown, None)


@pytest.mark.parametrize("kind", ["onnx", "torchscript", "pt2"])
def test_the_python_commands_run(
    kind: str, small_folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    manifest: Manifest = read(small_folder)
    artifact = next(a for a in manifest.artifacts if a.id == f"layer/elu/{kind}/dynamic")
    program = snippets(artifact)[0]
    monkeypatch.chdir(small_folder)
    exec(compile(program.code, "command", "exec"), {})
    shape = re.findall(r"\d+", capsys.readouterr().out)
    assert shape == ["1", "64", "32"]


def test_a_built_folder_renders(small_folder: Path) -> None:
    document = json.loads((small_folder / "report.json").read_text())
    html = render_html(Report.model_validate(document), read(small_folder))
    Page(html)
    assert str(small_folder) not in html


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
    assert [kind_of(v) for v in ("dynamic", "dynamic-fp16", "n512", "n512-fp16")] == [
        "dynamic", "dynamic-fp16", "fixed", "fixed-fp16",
    ]  # fmt: skip


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
