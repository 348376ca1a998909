"""The blame ladder and the repro, on planted faults of each rung."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from conftest import CallCli
from folders import CHECK, DYNAMIC, SCRIPT, alter, change_weight, entry, only, report_of, restamp
from linattn_runtime_checks.blame.ladder import climb
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import Case, StoredError
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.results.report import CaseResult, RuntimeResult

PT2 = "layer/elu/pt2/dynamic"


def runtime(done: object, name: str) -> dict[str, object]:
    (found,) = entry(report_of(done), name)["runtimes"]  # type: ignore[arg-type]
    return dict(found)


def model_query(model: onnx.ModelProto) -> str:
    return next(str(node.input[1]) for node in model.graph.node if node.op_type == "Gemm")


def query_weights(model: onnx.ModelProto) -> None:
    """The query projection is a twentieth too large."""
    for item in model.graph.initializer:
        value = numpy_helper.to_array(item)
        if item.name == model_query(model):
            changed = value * np.float32(1.05)
            item.CopyFrom(numpy_helper.from_array(changed, item.name))


def test_a_fault_of_the_onnx_file(folder_copy: Path, call_cli: CallCli, tmp_path: Path) -> None:
    alter(folder_copy, DYNAMIC, query_weights, PT2, SCRIPT)
    repro = tmp_path / "repro"
    done = call_cli(CHECK, folder_copy, "--no-latency", "--repro", repro, "--json")
    assert done.returncode == 1
    found = runtime(done, DYNAMIC)
    assert str(found["blame"]).startswith("first departs: onnx (")
    assert "right before it: eager, exported program, torchscript" in str(found["blame"])
    assert "node_Gemm_" in str(found["departure"])
    assert "blame: layer/elu/onnx/dynamic on ort-cpu: first departs: onnx" in done.stderr
    assert runtime(done, PT2)["blame"] is None
    place = repro / str(found["repro"])
    assert {path.name for path in place.iterdir()} == {
        "repro.py", "model.onnx", "inputs.npz", "expected.npz", "got.npz", "versions.json",
    }  # fmt: skip
    with np.load(place / "inputs.npz") as inputs:
        assert inputs["hidden_states"].shape[0] == 1, "one sequence of the batch"
        assert inputs["hidden_states"].shape[1] <= 3, "of the shortest that fails"
    seen = subprocess.run(
        [sys.executable, str(place / "repro.py")], capture_output=True, text=True, check=False
    )
    assert seen.returncode == 1, seen.stderr
    assert "the fault is there" in seen.stdout
    original = (folder_copy.parent / "artifacts" / DYNAMIC / "model.onnx").read_bytes()
    assert (place / "model.onnx").read_bytes() == original
    assert "onnxruntime" in json.loads((place / "versions.json").read_text())


def test_the_repro_says_when_the_fault_is_gone(
    folder_copy: Path, small_folder: Path, call_cli: CallCli, tmp_path: Path
) -> None:
    alter(folder_copy, DYNAMIC, change_weight(lambda largest: largest * 1.05))
    only(folder_copy, DYNAMIC)
    call_cli(CHECK, folder_copy, "--runtime", "ort-cpu", "--no-latency", "--repro", tmp_path / "r")
    (place,) = (tmp_path / "r").iterdir()
    (place / "model.onnx").write_bytes((small_folder / DYNAMIC / "model.onnx").read_bytes())
    seen = subprocess.run(
        [sys.executable, str(place / "repro.py")], capture_output=True, text=True, check=False
    )
    assert (seen.returncode, seen.stdout.splitlines()[-1]) == (0, "the fault is gone")


@pytest.mark.slow
def test_a_fault_of_the_torchscript_file(
    folder_copy: Path, call_cli: CallCli, tmp_path: Path
) -> None:
    path = folder_copy / SCRIPT / "model.pt"
    module = torch.jit.load(str(path))  # type: ignore[no-untyped-call]
    with torch.no_grad():
        next(iter(module.parameters())).mul_(1.01)
    module.save(str(path))
    restamp(folder_copy, SCRIPT)
    only(folder_copy, SCRIPT, PT2)
    done = call_cli(CHECK, folder_copy, "--no-latency", "--repro", tmp_path / "r", "--json")
    found = runtime(done, SCRIPT)
    assert str(found["blame"]).startswith("first departs: torchscript (")
    assert "right before it: eager" in str(found["blame"])
    seen = subprocess.run(
        [sys.executable, str(tmp_path / "r" / str(found["repro"]) / "repro.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert seen.returncode == 1, seen.stderr


def test_nothing_is_written_where_nothing_fails(
    folder_copy: Path, call_cli: CallCli, tmp_path: Path
) -> None:
    only(folder_copy, DYNAMIC)
    done = call_cli(
        CHECK, folder_copy, "--runtime", "ort-cpu", "--no-latency", "--repro", tmp_path / "r"
    )
    assert done.returncode == 0
    assert not (tmp_path / "r").exists()


def stored_case(eager: float, sensitivity: float) -> Case:
    return Case(
        name="c",
        family="normal",
        batch=1,
        sequence=2,
        stored="c",
        eager_error=StoredError(row=eager, whole=eager),
        sensitivity=StoredError(row=sensitivity, whole=sensitivity),
    )


def outcome(mode: str, code: Code) -> CaseResult:
    return CaseResult(mode=mode, case="c", family="normal", batch=1, sequence=2, code=code)


@pytest.mark.parametrize(
    ("eager", "off", "on", "first"),
    [
        (1e-3, Code.PARITY_EXCEEDED, Code.PARITY_EXCEEDED, "eager"),
        (1e-7, Code.PARITY_EXCEEDED, Code.PARITY_EXCEEDED, "onnx"),
        (1e-7, Code.PASS, Code.PARITY_EXCEEDED, "optimizer"),
        (1e-7, Code.PASS, Code.PASS, "provider"),
    ],
)
def test_the_first_rung_that_departs(
    eager: float, off: Code, on: Code, first: str, small_folder: Path
) -> None:
    """With CUDA results made up: no GPU is needed to see that the ladder reaches it."""
    (artifact,) = [a for a in read(small_folder).artifacts if a.id == DYNAMIC]
    cpu = RuntimeResult(
        runtime="ort-cpu", cases=[outcome("optimizer-off", off), outcome("optimizer-on", on)]
    )
    cuda = RuntimeResult(runtime="ort-cuda", cases=[outcome("optimizer-on", Code.PARITY_EXCEEDED)])
    results = {artifact.id: (artifact, [cpu, cuda])}
    found = climb(artifact, cuda, stored_case(eager, 1e-7), results)
    assert found.first == first
    assert [step.rung for step in found.steps] == [
        "eager", "exported program", "torchscript", "onnx", "optimizer", "provider",
    ]  # fmt: skip
    assert "not run here: exported program, torchscript" in found.message or first == "eager"
    assert ("TF32" in found.message) == (first == "provider")


def test_tf32_that_the_environment_forces_is_named(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    (artifact,) = [a for a in read(small_folder).artifacts if a.id == DYNAMIC]
    modes = ("optimizer-off", "optimizer-on")
    cpu = RuntimeResult(runtime="ort-cpu", cases=[outcome(mode, Code.PASS) for mode in modes])
    cuda = RuntimeResult(runtime="ort-cuda", cases=[outcome("optimizer-on", Code.PARITY_EXCEEDED)])
    results = {artifact.id: (artifact, [cpu, cuda])}
    found = climb(artifact, cuda, stored_case(1e-7, 1e-7), results)
    assert "TF32 is forced on by NVIDIA_TF32_OVERRIDE=1: unset it" in found.message
