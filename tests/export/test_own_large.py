"""Modules whose weights do not fit into one ONNX file, or beside copies of themselves."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import own_nets
from linattn_export import export_module
from linattn_export.formats import onnx_graph
from linattn_export.subjects import subject
from linattn_export.subjects.perturb import moved
from linattn_export.subjects.widened import Widened
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.judging.folder import CheckRequest, check_folder
from own_specs import TOKENS
from processes import children_of

GIB = 2**30


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a small module that is treated as a large one."""
    monkeypatch.setattr(onnx_graph, "_PROTOBUF_LIMIT", 1024)
    monkeypatch.setattr(subject, "LARGE", 0)
    torch.manual_seed(0)
    report = export_module(
        own_nets.Net(), TOKENS, tmp_path / "out", formats=["onnx"], quiet=True, latency=False
    )
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    return tmp_path / "out"


def test_weights_beside_the_file_are_vouched_for(folder: Path) -> None:
    (artifact,) = read(folder).artifacts
    (beside,) = artifact.side_files
    assert beside.path == "net/own/onnx/dynamic/model.onnx.data"
    assert beside.bytes > artifact.weight_bytes / 2
    model = onnx.load(folder / artifact.path, load_external_data=False)
    kept = [w for w in model.graph.initializer if w.data_location == onnx.TensorProto.EXTERNAL]
    assert {item.value for w in kept for item in w.external_data if item.key == "location"} == {
        "model.onnx.data"
    }
    data = bytearray((folder / beside.path).read_bytes())
    data[100] ^= 1
    (folder / beside.path).write_bytes(data)
    report = check_folder(folder, read(folder), CheckRequest(latency=False, quiet=True))
    assert [finding.code for finding in report.findings] == [Code.FILE_DAMAGED]
    assert not report.artifacts[0].judged, "what is damaged is not loaded"


@pytest.mark.slow
def test_weights_in_a_file_that_is_not_listed_are_refused(folder: Path) -> None:
    manifest = read(folder)
    manifest.artifacts[0].side_files = []
    report = check_folder(folder, manifest, CheckRequest(latency=False, quiet=True))
    (finding,) = [f for f in report.all_findings() if f.code is Code.LOAD_FAILED]
    assert "another file, 'model.onnx.data', which the manifest does not vouch for" in (
        finding.message
    )


def test_moved_weights_move_the_output_as_copies_would() -> None:
    torch.manual_seed(0)
    module = own_nets.SequenceFirst().eval()
    x = torch.randn(9, 3, 8)
    with torch.no_grad():
        plain = Widened(module)(x)
        one = Widened(module, moved=True)(x)
        again = Widened(module, moved=True)(x)
        copied = moved(module.double(), torch.float32, 0)(x.double())
    assert plain.dtype == torch.float64
    assert torch.equal(one, again)
    ours, theirs = (torch.linalg.norm(other - plain).item() for other in (one, copied))
    assert 0.3 < ours / theirs < 3


_LARGE = """
import torch
from torch import nn
from linattn import MultiHeadAttention
from linattn_export import export_module

class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 4096)
        self.attention = MultiHeadAttention(4096, 32, method="elu")
        self.layers = nn.ModuleList(nn.Linear(4096, 4096, bias=False) for _ in range(34))

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.attention(x)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x

torch.manual_seed(0)
module = Large()
size = sum(p.numel() * p.element_size() for p in module.parameters())
assert size > 2.5e9, size
spec = {
    "symbols": {"batch": "1:2", "sequence": "1:8"},
    "inputs": {"tokens": {"dtype": "int64", "shape": ["batch", "sequence"], "range": [0, 63]}},
}
report = export_module(module, spec, "out", formats=["onnx"], latency=False, quiet=True)
print(size, report.verdict, [f.message for f in report.all_findings()])
assert report.verdict == "PASS"
"""


@pytest.mark.alone
@pytest.mark.slow
def test_a_model_of_two_and_a_half_gigabytes(tmp_path: Path) -> None:
    program = tmp_path / "large.py"
    program.write_text(_LARGE)
    running = subprocess.Popen(
        [sys.executable, str(program)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    peak = Peak(running.pid)
    out, _ = running.communicate()
    peak.stop()
    assert running.returncode == 0, out
    size = int(out.split()[0])
    (artifact,) = read(tmp_path / "out").artifacts
    assert artifact.side_files[0].bytes > 2.4e9
    assert peak.bytes < 3 * size, f"{peak.bytes / GIB:.2f} GiB, {peak.bytes / size:.2f} x its size"


class Peak:
    """The largest memory of a process and its children together, shared pages counted once."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid, self._done = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.is_set():
            pids = [self._pid, *children_of(self._pid)]
            self.bytes = max(self.bytes, sum(map(proportional, pids)))
            time.sleep(0.25)


def proportional(pid: int) -> int:
    """Proportional set size, bytes; 0 for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    lines = [line.split() for line in text.splitlines() if line.startswith("Pss:")]
    return int(np.sum([int(line[1]) for line in lines])) * 1024
