"""``linattn-check`` on files that are not what was written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from onnx.external_data_helper import set_external_data

from conftest import CallCli
from folders import (
    CHECK,
    DYNAMIC,
    FIXED,
    ONNX,
    OTHER,
    QUICK,
    codes,
    flip,
    judged,
    only,
    report_of,
    restamp,
)

# Files that are not what was written


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def link_outside(path: Path) -> None:
    outside = path.parents[4].parent / "outside.onnx"
    path.rename(outside)
    path.symlink_to(outside)


def link_folder_outside(path: Path) -> None:
    outside = path.parents[4].parent / "outside"
    path.parent.rename(outside)
    path.parent.symlink_to(outside)


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(truncate, "is truncated: ", id="truncated"),
        pytest.param(lengthen, "is longer than it was: ", id="longer"),
        pytest.param(flip, "was altered: its SHA-256 is not the one", id="one-bit"),
        pytest.param(Path.unlink, "is missing", id="missing"),
        pytest.param(link_outside, "is a link that leads out of the folder", id="link"),
        pytest.param(link_folder_outside, "is a link that leads out", id="link-of-its-folder"),
        pytest.param(link_to_itself, "cannot be read: ", id="link-to-itself"),
    ],
)
def test_a_damaged_artifact_is_named_and_not_loaded(
    damage: Callable[[Path], None],
    says: str,
    folder_copy: Path,
    call_cli: CallCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = []
    load = onnxruntime.InferenceSession

    def noted(path: str, *args: Any, **kwargs: Any) -> Any:
        loaded.append(Path(path))
        return load(path, *args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", noted)
    damage(folder_copy / ONNX)
    done = call_cli(CHECK, folder_copy, "--in-process", *QUICK, "--json")
    report = report_of(done)
    assert (done.returncode, report["verdict"]) == (3, "EXPORT")
    assert f"file_damaged: {ONNX} {says}" in done.stderr
    assert "build the folder again or restore the file" in done.stderr
    assert {finding["code"] for finding in report["findings"]} == {"file_damaged"}
    assert judged(report) == {FIXED, OTHER, OTHER.replace("dynamic", "n16")}
    assert set(loaded) == {folder_copy / name / "model.onnx" for name in judged(report)}


@pytest.mark.parametrize(
    ("runtime", "file", "module"),
    [
        pytest.param("torchscript", "model.pt", torch.jit, id="torchscript"),
        pytest.param("pt2", "model.pt2", torch.export, id="pt2"),
    ],
)
def test_a_changed_file_that_would_run_code_is_not_loaded(
    runtime: str,
    file: str,
    module: Any,
    folder_copy: Path,
    call_cli: CallCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = []
    load = module.load

    def noted(path: Any, *args: Any, **kwargs: Any) -> Any:
        loaded.append(Path(path))
        return load(path, *args, **kwargs)

    monkeypatch.setattr(module, "load", noted)
    changed, whole = f"layer/elu/{runtime}/dynamic", f"layer/elu/{runtime}/n16"
    only(folder_copy, changed, whole)
    flip(folder_copy / changed / file)
    done = call_cli(CHECK, folder_copy, "--in-process", "--runtime", runtime, "--no-latency")
    assert done.returncode == 3
    assert f"file_damaged: {changed}/{file} was altered" in done.stderr
    assert set(loaded) == {folder_copy / whole / file}


def test_a_changed_golden_pack_judges_nothing(folder_copy: Path, call_cli: CallCli) -> None:
    flip(folder_copy / "layer/elu/reference.safetensors")
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 3
    assert "file_damaged: layer/elu/reference.safetensors was altered" in done.stderr
    assert judged(report_of(done)) == {OTHER, OTHER.replace("dynamic", "n16")}


def test_changed_test_data_is_named(folder_copy: Path, call_cli: CallCli) -> None:
    flip(folder_copy / DYNAMIC / "test_data_set_0/input_0.pb")
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 3
    assert f"file_damaged: {DYNAMIC}/test_data_set_0/input_0.pb was altered" in done.stderr
    assert len(judged(report_of(done))) == 4


def test_a_file_that_does_not_load(folder_copy: Path, call_cli: CallCli) -> None:
    (folder_copy / ONNX).write_bytes(b"not a graph")
    restamp(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 3
    assert codes(report_of(done), DYNAMIC) == {"load_failed"}
    assert f"{DYNAMIC} on ort-cpu" in done.stderr
    assert len(judged(report_of(done))) == 3


@pytest.mark.parametrize("place", ["weights.bin", "../../../../outside.bin", "/outside.bin"])
def test_weights_in_a_file_that_has_no_hash_are_refused(
    place: str, folder_copy: Path, call_cli: CallCli
) -> None:
    """Beside the model they load, and could be anybody's; elsewhere they are not ours at all."""

    def move_out(model: onnx.ModelProto) -> None:
        tensor = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        content = tensor.raw_data
        (folder_copy / DYNAMIC / "weights.bin").write_bytes(content)
        set_external_data(tensor, place, offset=0, length=len(content))
        tensor.ClearField("raw_data")

    path = folder_copy / ONNX
    model = onnx.load(path)
    move_out(model)
    path.write_bytes(model.SerializeToString())
    restamp(folder_copy, DYNAMIC)
    only(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 3
    assert codes(report_of(done), DYNAMIC) == {"load_failed"}
    said = f"keeps tensors in another file, {place!r}, which the manifest does not vouch for"
    assert said in done.stderr
