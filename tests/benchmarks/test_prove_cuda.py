"""The CUDA proof on a machine without CUDA: every item says PASS or FAIL, and it fails."""

import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

from roots import ROOT

SCRIPT = ROOT / "benchmarks" / "prove_cuda.py"
ITEMS = ("misspelt", "no device", "available", "artifacts", "placement", "tf32", "tf32 bites")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="has CUDA"
)
def test_without_cuda_it_fails_item_by_item(small_folder: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(small_folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line[6:18].strip() for line in lines] == list(ITEMS)
    outcomes = {line[6:18].strip(): line[:4] for line in lines}
    assert outcomes["misspelt"] == outcomes["no device"] == "PASS", "these need no device"
    assert outcomes["available"] == outcomes["tf32"] == "FAIL"
    assert "no CUDAExecutionProvider" in done.stdout
