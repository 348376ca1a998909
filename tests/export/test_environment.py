"""What is missing, full or shared on the machine: seen in processes of their own."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from conftest import snapshot
from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.runtimes.base import SessionOptions
from linattn_runtime_checks.runtimes.onnx_runtime import CPU, OrtSession

pytestmark = pytest.mark.slow

WORDS = "build -q -m elu --d-model 256 -n 4 --no-dynamic --batch 1 --no-latency"
BUILD = WORDS.split(" ")
WITHOUT = """
import importlib.util, sys
missing = sys.argv.pop(1).split(",")
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in missing else found(name, *rest)
sys.modules.update(dict.fromkeys(missing))
from linattn_export.cli import main
main()
"""


def without(missing: str, *args: object) -> subprocess.CompletedProcess[str]:
    """``linattn-export`` in a process that cannot import ``missing``."""
    command = [sys.executable, "-c", WITHOUT, missing, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "missing",
    [
        "onnx",
        pytest.param("onnxscript"),
        pytest.param("onnx,onnxscript"),
    ],
)
def test_without_the_onnx_packages_the_other_formats_are_built(
    missing: str, tmp_path: Path
) -> None:
    refused = without(missing, *BUILD, "-o", tmp_path / "out")
    assert refused.returncode == 4
    assert missing.replace(",", " and ") in refused.stderr
    assert "pip install 'linattn[export]'" in refused.stderr
    assert "Traceback" not in refused.stderr
    built = without(missing, *BUILD, "-f", "torchscript", "-f", "pt2", "-o", tmp_path / "out")
    assert built.returncode == 0, built.stderr


def test_without_onnxruntime_onnx_files_are_written_and_said_to_be_unverified(
    tmp_path: Path,
) -> None:
    built = without("onnxruntime", *BUILD, "-f", "onnx", "-o", tmp_path / "out")
    assert built.returncode == 5
    assert "UNVERIFIED" in built.stderr
    assert "1 were not judged" in built.stderr


@pytest.mark.parametrize("kind", ["onnx", "torchscript", "pt2"])
def test_a_disk_that_fills_up_is_an_error_and_not_an_abort(kind: str, tmp_path: Path) -> None:
    """torch's own writers abort the process there; a limit on file sizes does the same to them."""
    old = tmp_path / "out"
    old.mkdir()
    (old / "linattn_manifest.json").write_text("{}")
    before = snapshot(tmp_path)
    limit = 400 * 1024  # above the golden pack, below the weights
    result = subprocess.run(
        [sys.executable, "-m", "linattn_export", *BUILD, "-f", kind, "-o", old],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert result.returncode == 3, result.stderr
    assert "File too large" in result.stderr
    assert "unchanged" in result.stderr
    assert snapshot(tmp_path) == before


def test_a_path_with_spaces_quotes_and_other_alphabets(tmp_path: Path) -> None:
    folder = tmp_path / "ü 日本 'q\"" / "out put"
    built = without("nothing", *BUILD, "-f", "onnx", "-f", "pt2", "-o", folder)
    assert built.returncode == 0, built.stderr
    command = [sys.executable, "-m", "linattn_runtime_checks", str(folder), "--json", "-q"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0
    assert json.loads(checked.stdout)["verdict"] == "PASS"


def test_two_builds_into_one_folder_leave_one_of_them_whole(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    words = ["build", "-q", "-m", "elu", "--d-model", "16", "--heads", "2", "--no-check"]
    command = [sys.executable, "-m", "linattn_export", *words, "-f", "pt2", "--no-dynamic"]
    running = [
        subprocess.Popen([*command, "-n", str(n), "-o", str(folder)], stderr=subprocess.DEVNULL)
        for n in (8, 9)
    ]
    codes = [process.wait() for process in running]
    assert set(codes) <= {3, 5}
    assert 5 in codes
    (variant,) = (folder / "layer/elu/pt2").iterdir()
    manifest = json.loads((folder / "linattn_manifest.json").read_text())
    assert [artifact["variant"] for artifact in manifest["artifacts"]] == [variant.name]
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_too_new_for_the_runtime_says_what_to_do(small_folder: Path, tmp_path: Path) -> None:
    model = onnx.load(small_folder / "layer/elu/onnx/n16/model.onnx")
    model.ir_version = 99
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    options = SessionOptions(mode="optimizer-on", threads=1)
    with pytest.raises(ExportError, match=r"IR version: 99.*upgrade onnxruntime, .*--opset 18"):
        OrtSession(path, options, CPU)
