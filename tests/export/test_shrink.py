"""The repro of a build is made as small as the fault still shows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from linattn.methods.elu import EluAttention
from linattn_export.build.pipeline import build
from linattn_export.build.shrink import _smaller
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.results.report import ArtifactResult
from planting import normaliser_dropped, plant


def request(tmp_path: Path, **changes: object) -> BuildRequest:
    fields: dict[str, object] = {
        "output": tmp_path / "out",
        "methods": ("elu",),
        "models": ("attention",),
        "formats": ("onnx",),
        "lengths": (),
        "dynamic": "1:100",
        "batch": "1:4",
        "d_model": 64,
        "heads": 4,
        "latency": False,
        "quiet": True,
    }
    return BuildRequest(**(fields | changes))  # type: ignore[arg-type]


def test_heads_width_batch_and_length_shrink(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, EluAttention, normaliser_dropped)
    report = build(request(tmp_path))
    assert report.exit_code is ExitCode.PARITY
    (place,) = (tmp_path / "out" / "repro").iterdir()
    assert report.artifacts[0].runtimes[0].repro == place.name
    with np.load(place / "inputs.npz") as inputs:
        assert inputs["query"].shape == (1, 1, 1, 8), "one sequence, head and token"
    command = [sys.executable, str(place / "repro.py")]
    seen = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stdout.splitlines()[-1]) == (1, "the fault is there")


@pytest.mark.slow
def test_a_fault_that_small_artifacts_do_not_have_keeps_its_own_repro(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wrong_for_wide_heads(self, q, k, v):  # type: ignore[no-untyped-def]
        right = EluAttention_forward(self, q, k, v)
        return right * 1.01 if q.shape[-1] == 16 else right

    EluAttention_forward = EluAttention.forward
    plant(monkeypatch, EluAttention, wrong_for_wide_heads)
    report = build(request(tmp_path))
    assert report.exit_code is ExitCode.PARITY
    (place,) = (tmp_path / "out" / "repro").iterdir()
    with np.load(place / "inputs.npz") as inputs:
        assert inputs["query"].shape[1:] == (4, 1, 16), "not shrunk in heads, but in the rest"


def test_sizes_that_a_layer_fills_in_are_not_taken_to_a_smaller_one(tmp_path: Path) -> None:
    options: dict[str, object] = {"head_dim": 16, "features": 5}
    large = request(tmp_path, methods=("performer",), options={"performer": options})
    artifact = ArtifactResult(
        id="attention/performer/onnx/dynamic",
        model="attention",
        method="performer",
        format="onnx",
        variant="dynamic",
        bytes=1,
        parameters=1,
        nodes=1,
        declared_sequence=(1, 100),
    )
    small = _smaller(artifact, "ort-cpu", large)
    (subject,) = make_subjects(small)
    config = subject.config(subject.module)
    assert (config["features"], config["head_dim"]) == (5, 8)
    make_subjects(large)
