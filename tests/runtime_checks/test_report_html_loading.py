"""The commands of ``report.html`` that load an artifact."""

import json
import re
from pathlib import Path

import pytest

import report_pages
from linattn_runtime_checks.contract.manifest import Manifest, read
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.report.html.loading import snippets
from linattn_runtime_checks.results.report import Report
from page_elements import Page


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
