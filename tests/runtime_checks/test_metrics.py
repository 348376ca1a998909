"""Scores on held-out data: what they are, and that a file which does its job worse is found out."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from checking import performed
from conftest import BuildOnce, CallCli
from folders import CHECK, QUICK, Document, codes, edit, entry, report_of, restamp
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.checks.held_out import fallen, metric_of
from linattn_runtime_checks.contract import manifest
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode, ExportError
from linattn_runtime_checks.contract.golden_pack import (
    ReferenceIndex,
    open_reference,
    write_reference,
)
from linattn_runtime_checks.contract.integrity import stored
from linattn_runtime_checks.contract.manifest import TensorSpec
from linattn_runtime_checks.contract.metrics import METRICS, bits_per_byte, top1
from linattn_runtime_checks.results.report import TaskResult
from linattn_runtime_checks.runtimes.base import Tensors

DIGITS = "digits/elu/onnx/dynamic"
PACK = "digits/elu/reference.safetensors"


def test_top1_is_the_share_of_rows_whose_largest_output_is_the_label() -> None:
    outputs = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.4], [5.0, -1.0]], dtype=np.float32)
    assert top1(outputs, np.array([1, 0, 0, 1])) == 0.5


def test_bits_per_byte_are_those_of_the_softmax() -> None:
    labels = np.array([[3, 200], [0, 255]])
    assert bits_per_byte(np.zeros((2, 2, 256), dtype=np.float32), labels) == pytest.approx(8)
    sure = np.zeros((2, 2, 256), dtype=np.float32)
    np.put_along_axis(sure, labels[..., None], 1e4, axis=-1)
    assert bits_per_byte(sure, labels) == 0
    chosen = np.random.default_rng(0).standard_normal((2, 2, 256))
    share = np.exp(chosen) / np.exp(chosen).sum(-1, keepdims=True)
    bits = -np.log2(np.take_along_axis(share, labels[..., None], axis=-1)).mean()
    assert bits_per_byte(chosen, labels) == pytest.approx(bits)
    assert math.isnan(bits_per_byte(np.full((2, 2, 256), np.nan), labels))


def result(metric: str, score: float, reference: float) -> TaskResult:
    allowed = METRICS[metric].allowed(reference, reference, 100)
    return TaskResult(
        metric=metric, score=score, reference_score=reference, allowed=allowed, samples=100
    )


@pytest.mark.parametrize(
    ("metric", "score", "reference", "falls"),
    [
        pytest.param("top1", 0.95, 0.95, False, id="the-same"),
        pytest.param("top1", 0.94, 0.95, False, id="one-label-tipped"),
        pytest.param("top1", 0.93, 0.95, True, id="two-labels"),
        pytest.param("top1", 0.99, 0.95, False, id="more-labels"),
        pytest.param("bits_per_byte", 2.4005, 2.4, False, id="half-a-grain"),
        pytest.param("bits_per_byte", 2.41, 2.4, True, id="more-bits"),
        pytest.param("bits_per_byte", 2.0, 2.4, False, id="fewer-bits"),
        pytest.param("bits_per_byte", math.nan, 2.4, True, id="no-number"),
    ],
)
def test_only_what_is_worse_than_rounding_explains_is_found(
    metric: str, score: float, reference: float, falls: bool
) -> None:
    found = fallen(result(metric, score, reference))
    assert [problem.code for problem in found] == [Code.METRIC_FELL] * falls
    assert CODES[Code.METRIC_FELL].exit_code is ExitCode.PARITY
    assert all(METRICS[metric].text(reference) in problem.message for problem in found)


def test_what_eager_loses_is_allowed_four_times() -> None:
    assert METRICS["top1"].allowed(0.95, 0.94, 100) == pytest.approx(0.055)
    assert METRICS["bits_per_byte"].allowed(2.4, 2.41, 100) == pytest.approx(0.041)


def test_an_unknown_metric_says_what_is_known() -> None:
    with pytest.raises(ExportError, match=r"scores by 'bleu'; known: top1, bits_per_byte"):
        metric_of("bleu")


@pytest.fixture(scope="module")
def digits(build_once: BuildOnce) -> Path:
    request = BuildRequest(
        models=("digits",), methods=("elu",), formats=("onnx",), lengths=(),
        dynamic="61:64", batch="1:4",
    )  # fmt: skip
    return build_once(request)


@pytest.fixture
def copy(digits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits, tmp_path / "out"))


def repack(
    folder: Path, change: Callable[[ReferenceIndex, dict[str, NDArray[Any]]], object]
) -> None:
    """Change the golden pack, and let the manifest vouch for it."""
    from safetensors.numpy import load_file

    with open_reference(folder / PACK) as pack:
        index = pack.index
    tensors = load_file(folder / PACK)
    change(index, tensors)
    write_reference(folder / PACK, index, tensors)
    fresh = stored(folder, PACK).model_dump()
    edit(folder, lambda document: document["references"].__setitem__(slice(None), [fresh]))


def judged(call_cli: CallCli, folder: Path) -> Document:
    return report_of(call_cli(CHECK, folder, *QUICK, "--json"))


def test_the_score_is_beside_the_verdict_wherever_it_is_read(
    digits: Path, call_cli: CallCli, tmp_path: Path
) -> None:
    report = judged(call_cli, digits)
    (runtime,) = entry(report, DIGITS)["runtimes"]
    task = runtime["task"]
    assert codes(report, DIGITS) == set()
    assert task["metric"] == "top1"
    assert task["score"] == pytest.approx(task["reference_score"], abs=task["allowed"])
    assert (task["samples"], task["allowed"]) == (360, pytest.approx(1.5 / 360))
    score = f"{task['score']:.2%}"
    document = json.loads((digits / "linattn_manifest.json").read_text())
    (told,) = entry(document, DIGITS)["checks"]
    assert (told["metric"], told["score"]) == ("top1", task["score"])
    text = (digits / "report.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith(f"| {DIGITS} |"))
    assert f"| PASS | {score} | {score} |" in row
    assert f"| {DIGITS} | ort-cpu | PASS | accuracy | {score} | {score} | 0.42% | 360 |" in text
    page = (digits / "report.html").read_text()
    assert "in float64" in page
    assert page.count(score) >= 4
    shown = call_cli(CHECK, digits, *QUICK, "--summary", tmp_path / "summary.md").stderr
    assert f"| digits/elu | PASS | {score} | {score} |" in (tmp_path / "summary.md").read_text()
    assert "in float64" in shown
    assert shown.count(score) == 4


def test_permuted_labels_of_the_held_out_data_are_found(copy: Path, call_cli: CallCli) -> None:
    def permute(index: ReferenceIndex, tensors: dict[str, NDArray[Any]]) -> None:
        tensors["task/labels"] = (tensors["task/labels"] + 1) % 10

    repack(copy, permute)
    report = judged(call_cli, copy)
    assert codes(report, DIGITS) == {"metric_fell"}
    (finding,) = entry(report, DIGITS)["runtimes"][0]["findings"]
    assert "accuracy on held-out data is " in finding["message"]
    assert "that of the float64 module 96." in finding["message"]
    assert report["exit_code"] == ExitCode.PARITY


def test_a_metric_that_is_not_known_here_is_a_finding(copy: Path, call_cli: CallCli) -> None:
    def rename(index: ReferenceIndex, tensors: dict[str, NDArray[Any]]) -> None:
        assert index.task is not None
        index.task.metric = "bleu"

    repack(copy, rename)
    report = judged(call_cli, copy)
    assert codes(report, DIGITS) == {"run_failed"}
    (finding,) = entry(report, DIGITS)["runtimes"][0]["findings"]
    assert "held-out data does not run: the golden pack scores by 'bleu'" in finding["message"]


def alter(folder: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    path = folder / DIGITS / "model.onnx"
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    restamp(folder, DIGITS)


def test_outputs_in_another_order_lose_the_task(copy: Path, call_cli: CallCli) -> None:
    def roll_head(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            if "head" in tensor.name:
                array = numpy_helper.to_array(tensor)
                axis = array.shape.index(10)
                tensor.CopyFrom(numpy_helper.from_array(np.roll(array, 1, axis), tensor.name))

    alter(copy, roll_head)
    assert {"metric_fell", "parity_exceeded"} <= codes(judged(call_cli, copy), DIGITS)


def test_names_of_classes_in_another_order_are_found(copy: Path, call_cli: CallCli) -> None:
    edit(copy, lambda document: entry(document, DIGITS)["labels"].reverse())
    report = judged(call_cli, copy)
    assert codes(report, DIGITS) == {"labels_differ"}
    (finding,) = entry(report, DIGITS)["runtimes"][0]["findings"]
    assert '"9", "8"' in finding["message"]


@dataclass
class Naming:
    """A session of a file that names its classes."""

    text: str | None

    def run(self, inputs: Tensors) -> Tensors:
        raise NotImplementedError

    def signature(self) -> tuple[list[TensorSpec], list[TensorSpec]] | None:
        return None

    def labels(self) -> str | None:
        return self.text

    def providers(self) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("text", "differ"),
    [
        pytest.param('["9", "8"]', True, id="others"),
        pytest.param("no JSON", True, id="text"),
        pytest.param(None, True, id="none"),
        pytest.param(json.dumps(list("0123456789")), False, id="the-same"),
    ],
)
def test_names_that_the_file_gives_otherwise_are_found(
    text: str | None, differ: bool, digits: Path
) -> None:
    (artifact,) = manifest.read(digits).artifacts
    with open_reference(digits / PACK) as pack:
        found = performed(Naming(text), artifact, pack, ["labels"]).findings
        assert [(finding.code, finding.check) for finding in found] == [
            (Code.LABELS_DIFFER, "labels")
        ] * differ
        assert all(f"{text or '[]'} in the file" in finding.message for finding in found)
        # TorchScript and torch.export files name nothing.
        script = artifact.model_copy(update={"format": "torchscript"})
        assert not performed(Naming(None), script, pack, ["labels"]).findings
