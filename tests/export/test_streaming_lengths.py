"""Exported graphs of every recurrent method: prefill = steps = any split, at many lengths."""

import functools
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
from linattn_export.subjects.making import make_subjects
from linattn_runtime_checks.checks.pieces import run_pieces
from linattn_runtime_checks.contract.integrity import stored
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Session, SessionOptions

LENGTHS = (1, 2, 63, 64, 65, 257, 1000, 4096)
SINGLE = 1e-5
"""Of a layer in float32: tens of roundings of 6e-8, and a norm that divides rows by their size."""
RECURRENT = [name for name in NAMES if record_of(name).capabilities.recurrent]
KINDS = ("pt2", "onnx", "torchscript", "onnx-ms", "onnx-std27")

pytestmark = pytest.mark.slow


@functools.lru_cache(maxsize=1)  # the kinds of one method and form come one after the other
def jobs(method: str, onnx_form: str) -> tuple[Job, Job]:
    """Prefill and step, each captured once for all formats."""
    request = BuildRequest(
        methods=(method,),
        entries=("prefill", "step"),
        onnx_forms=(onnx_form,),
        lengths=(),
        batch="1:4",
        d_model=16,
        heads=2,
    )
    prefill, step = (Job.of(each, each.variants[0], 18) for each in make_subjects(request))
    return prefill, step


@functools.lru_cache(maxsize=len(LENGTHS))
def case(method: str, length: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """An input, and what the layer in float64 makes of it."""
    subject = jobs(method, "portable")[0].subject
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(2, length, 16, generator=generator)
    states = [torch.zeros(2, *s.shape, dtype=torch.float64) for s in subject.states]
    layer: Any = subject.wide
    with torch.no_grad():
        expected = layer.advance(x.double(), None, states, False)[0]
    return x.numpy(), expected.numpy()


def opened(job: Job, kind: str, place: Path) -> tuple[Session, Artifact]:
    """The artifact of one variant, written and opened."""
    form = FORMATS[kind]
    path = place / f"{job.variant.name}-{form.file_name}"
    written = form.write(job, path)
    file = stored(place, path.name)
    artifact = entry_of(job, form, [file], written, path.name, "none.safetensors")
    runtime = next(r for r in RUNTIMES.values() if kind in r.formats)
    options = SessionOptions(mode=runtime.modes[-1], threads=1)
    return runtime.open(path, artifact, options), artifact


def apart(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", RECURRENT)
def test_prefill_steps_and_splits_are_the_definition(
    kind: str, method: str, tmp_path: Path
) -> None:
    form = kind.removeprefix("onnx-") if "-" in kind else "portable"
    prefill, step = jobs(method, form)
    format_name = kind.split("-")[0]
    whole, about = opened(prefill, format_name, tmp_path)
    one, about_one = opened(step, format_name, tmp_path)
    for length in LENGTHS:
        x, expected = case(method, length)
        inputs = {"hidden_states": x}
        splits = [[length]]
        if length > 2:
            splits += [[1, length - 1], [length // 2, length - length // 2]]
        if length > 130:
            splits.append([63, 1, 65, length - 129])
        for pieces in splits:
            assert apart(run_pieces(whole, about, inputs, pieces), expected) < SINGLE, pieces
        if length <= 1000 or format_name == "onnx":  # Python's calls take seconds by then
            got = run_pieces(one, about_one, inputs, [1] * length)
            assert apart(got, expected) < SINGLE, f"{length} steps"
