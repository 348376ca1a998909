import json
from pathlib import Path

import onnx
import pytest

from conftest import CallCli
from linattn import NAMES
from linattn_export.formats import FORMATS
from linattn_export.options.releases import IR_OF_OPSET, smallest_onnxruntime
from linattn_models import MODELS
from linattn_runtime_checks.runtimes import RUNTIMES

DYNAMIC = "layer/elu/onnx/dynamic/model.onnx"


@pytest.mark.parametrize(
    ("opset", "release"),
    [
        (17, "1.15"),
        (18, "1.15"),
        (19, "1.16"),
        (20, "1.17"),
        (21, "1.18"),
        (22, "1.21"),
        (23, "1.23"),
    ],
)
def test_the_release_that_was_seen_to_load_each_opset(opset: int, release: str) -> None:
    assert smallest_onnxruntime(opset, IR_OF_OPSET[opset]) == release


def test_a_newer_ir_needs_a_newer_release_whatever_the_opset() -> None:
    assert smallest_onnxruntime(18, 10) == "1.18"
    assert smallest_onnxruntime(18, 99) == "1.32"


def test_a_file(small_folder: Path, call_cli: CallCli) -> None:
    result = call_cli("linattn_export", "inspect", small_folder / DYNAMIC)
    assert result.returncode == 0
    for text in (
        "opset      ai.onnx 18; IR 8",
        "loads in   ONNX Runtime 1.15 and later",
        "input      hidden_states float32 [batch, sequence, 32]",
        "Gemm 4, MatMul 4",
        "linattn.verified_sequence = 1:64",
    ):
        assert text in result.stdout


def test_a_file_as_json(small_folder: Path, call_cli: CallCli) -> None:
    result = call_cli("linattn_export", "inspect", small_folder / DYNAMIC, "--json")
    found = json.loads(result.stdout)
    assert found["operators"]["MatMul"] == 4
    assert found["inputs"] == [
        {"name": "hidden_states", "dtype": "float32", "shape": ["batch", "sequence", 32]}
    ]


def test_a_file_without_metadata_is_told_apart(
    small_folder: Path, tmp_path: Path, call_cli: CallCli
) -> None:
    model = onnx.load(small_folder / DYNAMIC)
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "bare.onnx")
    result = call_cli("linattn_export", "inspect", tmp_path / "bare.onnx")
    assert "metadata   none" in result.stdout


def test_a_folder(small_folder: Path, call_cli: CallCli) -> None:
    result = call_cli("linattn_export", "inspect", small_folder)
    assert "verdict    PASS" in result.stdout
    assert "layer/linformer/pt2/n16" in result.stdout


def test_what_cannot_be_inspected(small_folder: Path, tmp_path: Path, call_cli: CallCli) -> None:
    text = tmp_path / "text.onnx"
    text.write_text("not a model")
    script = small_folder / "layer/elu/torchscript/dynamic/model.pt"
    for path, code, words in (
        (text, 3, "is not an ONNX file"),
        (tmp_path / "absent.onnx", 2, "no such file"),
        (script, 2, "runs code when it is loaded"),
        (tmp_path, 2, "holds no linattn_manifest.json"),
    ):
        result = call_cli("linattn_export", "inspect", path)
        assert (result.returncode, result.stdout) == (code, ""), path
        assert words in result.stderr
        assert "Traceback" not in result.stderr


def test_list_names_everything_in_the_tables(call_cli: CallCli) -> None:
    result = call_cli("linattn_export", "list")
    assert result.returncode == 0
    words = result.stdout.split()
    assert {*NAMES, *MODELS, *FORMATS, *RUNTIMES} <= set(words)
    assert "[batch, sequence, d_model]" in result.stdout
    document = json.loads(call_cli("linattn_export", "list", "--json").stdout)
    assert [row["method"] for row in document["methods"]] == list(NAMES)
    assert document["unavailable"]["runtime ort-cpu"] is None
    assert "pip install 'linattn[cuda]'" in document["unavailable"]["runtime ort-cuda"]
