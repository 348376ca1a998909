"""Exported graphs of every recurrent method: prefill = steps = any split, at many lengths."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from linattn import NAMES, record_of
from linattn_export.build.record import entry_of
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.options.request import BuildRequest
from linattn_export.options.variants import Variant
from linattn_export.subjects.making import make_subjects
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.checks.pieces import run_pieces
from linattn_runtime_checks.contract.integrity import stored
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Session, SessionOptions

LENGTHS = (1, 2, 63, 64, 65, 257, 1000, 4096)
SINGLE = 1e-5
"""Of a layer in float32: tens of roundings of 6e-8, and a norm that divides rows by their size."""
RECURRENT = [name for name in NAMES if record_of(name).capabilities.recurrent]
KINDS = ("onnx", "onnx-ms", "onnx-std27", "torchscript", "pt2")

pytestmark = pytest.mark.slow


def opened(subject: Subject, variant: Variant, kind: str, place: Path) -> tuple[Session, Artifact]:
    """The artifact of one variant, written and opened."""
    job, form = Job.of(subject, variant, 18), FORMATS[kind]
    path = place / f"{variant.name}-{form.file_name}"
    written = form.write(job, path)
    file = stored(place, path.name)
    artifact = entry_of(job, form, [file], written, path.name, "none.safetensors")
    runtime = next(r for r in RUNTIMES.values() if kind in r.formats)
    options = SessionOptions(mode=runtime.modes[-1], threads=1)
    return runtime.open(path, artifact, options), artifact


def apart(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("method", RECURRENT)
@pytest.mark.parametrize("kind", KINDS)
def test_prefill_steps_and_splits_are_the_definition(
    kind: str, method: str, tmp_path: Path
) -> None:
    form = kind.removeprefix("onnx-") if "-" in kind else "portable"
    request = BuildRequest(
        methods=(method,),
        entries=("prefill", "step"),
        onnx_forms=(form,),
        lengths=(),
        batch="1:4",
        d_model=16,
        heads=2,
    )
    prefill, step = make_subjects(request)
    format_name = kind.split("-")[0]
    whole, about = opened(prefill, prefill.variants[0], format_name, tmp_path)
    one, about_one = opened(step, step.variants[0], format_name, tmp_path)
    layer: Any = prefill.wide
    for length in LENGTHS:
        generator = torch.Generator().manual_seed(length)
        x = torch.randn(2, length, 16, generator=generator)
        states = [torch.zeros(2, *s.shape, dtype=torch.float64) for s in prefill.states]
        with torch.no_grad():
            expected = layer.advance(x.double(), None, states, False)[0].numpy()
        inputs = {"hidden_states": x.numpy()}
        splits = [[length]]
        if length > 2:
            splits += [[1, length - 1], [length // 2, length - length // 2]]
        if length > 130:
            splits.append([63, 1, 65, length - 129])
        for pieces in splits:
            assert apart(run_pieces(whole, about, inputs, pieces), expected) < SINGLE, pieces
        got = run_pieces(one, about_one, inputs, [1] * length)
        assert apart(got, expected) < SINGLE, f"{length} steps"
