"""The families of inputs: what they hold, and what is said where PyTorch itself loses."""

import math

import numpy as np
import pytest
import torch

from linattn import METHODS
from linattn_export.build.pipeline import build
from linattn_export.inputs.drawing import draw
from linattn_export.inputs.families import EDGE, FAMILIES, SAMPLES, applicable
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_models import InputSpec
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.verdict import Error, compare

SPECS = (
    InputSpec(name="query", axes=("batch", 2, "sequence", 8)),
    InputSpec(name="key", axes=("batch", 2, "sequence", 8)),
    InputSpec(name="attention_mask", axes=("batch", "sequence"), kind="mask"),
)
SIZES = {"batch": 3, "sequence": 12}


def drawn(family: str, dtype: torch.dtype = torch.float32, **more: object) -> dict[str, np.ndarray]:
    found = draw(SPECS, SIZES, family=family, dtype=dtype, seed=1, **more)  # type: ignore[arg-type]
    return {name: tensor.numpy() for name, tensor in found.items()}


@pytest.mark.parametrize("family", [n for n, f in FAMILIES.items() if not f.directed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_family_is_finite_and_the_same_for_the_same_seed(family: str, dtype: torch.dtype) -> None:
    one, other = drawn(family, dtype), drawn(family, dtype)
    for name, tensor in one.items():
        assert np.isfinite(tensor.astype(np.float64)).all()
        assert tensor.tobytes() == other[name].tobytes()


def test_scales() -> None:
    plain = drawn("normal")["query"]
    for family in FAMILIES:
        if family.startswith("scale="):
            scale = float(family.removeprefix("scale="))
            ratio = np.linalg.norm(drawn(family)["query"]) / np.linalg.norm(plain)
            assert ratio == pytest.approx(scale, rel=0.2)
    scales = {float(f.removeprefix("scale=")) for f in FAMILIES if f.startswith("scale=")}
    assert (min(scales), max(scales)) == (1e-4, 1e4)


def test_rows() -> None:
    constant = drawn("constant-rows")["key"]
    assert (constant == constant[:, :, :1]).all()
    zero = drawn("zero-rows")
    assert not zero["query"][:, :, ::2].any()
    assert zero["query"][:, :, 1::2].all()
    only_keys = drawn("zero-key")
    assert not only_keys["key"][:, :, ::2].any()
    assert only_keys["query"].all()
    huge = np.abs(drawn("huge-token")["query"]).max(axis=(0, 1, 3))
    assert huge[-1] > 1000 * huge[:-1].max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_denormals_are_subnormal_and_not_zero(dtype: torch.dtype) -> None:
    rows = np.abs(drawn("denormals", dtype)["query"][:, :, ::2].astype(np.float64))
    assert rows.max() < torch.finfo(dtype).smallest_normal
    assert (rows > 0).mean() > 0.9


def test_masks() -> None:
    masks = {name: drawn(name)["attention_mask"] for name, f in FAMILIES.items() if f.mask}
    assert not masks["all-masked"].any()
    assert (masks["one-token"].sum(axis=1) == 1).all()
    assert not masks["one-empty"][0].any()
    assert masks["one-empty"][1:].all()
    right, left = masks["right-padding"], masks["left-padding"]
    assert (np.diff(right.astype(int), axis=1) <= 0).all()
    assert (np.diff(left.astype(int), axis=1) >= 0).all()
    padded = np.abs(drawn("right-padding")["query"]).transpose(0, 2, 1, 3)
    assert padded[~right].mean() > 5 * padded[right].mean(), "so that a leak shows"


def test_layer_directions_do_what_they_say() -> None:
    """Keys near -24 after the projection; queries and keys opposite, head by head."""
    request = BuildRequest(methods=("elu",), lengths=(), dynamic="1:40", d_model=64, heads=2)
    (subject,) = make_subjects(request)
    weight = subject.module.state_dict()["in_proj_weight"].double()
    query, key, _ = weight.chunk(3)
    negative = subject.directions["negative-features"]["hidden_states"]
    assert (key @ negative).mean() == pytest.approx(-24, abs=3)
    opposite = subject.directions["near-zero-denominator"]["hidden_states"]
    q, k = (query @ opposite).reshape(2, 32), (key @ opposite).reshape(2, 32)
    cosine = torch.nn.functional.cosine_similarity(q, k)
    assert (cosine < -0.9).all()


def test_only_families_that_make_sense_are_run() -> None:
    hidden = (InputSpec(name="hidden_states", axes=("batch", "sequence", 4)),)
    names = {family.name for family in applicable(hidden, mask=False, directions={})}
    assert "zero-key" not in names
    assert "right-padding" not in names
    assert "negative-features" not in names
    assert {"scale=0.0001", "denormals", "huge-token"} <= names
    sampled = (InputSpec(name="pixels", axes=("batch", "sequence"), kind="sample"),)
    names = {family.name for family in applicable(sampled, mask=False, directions={})}
    assert names == {"constant-rows", "zero-rows"}


def test_where_pytorch_itself_loses_the_report_says_so(tmp_path: object) -> None:
    """Taylor with keys opposite to the queries divides by nearly zero."""
    from pathlib import Path

    request = BuildRequest(
        output=Path(str(tmp_path)) / "out",
        methods=("taylor",),
        models=("attention",),
        formats=("onnx",),
        lengths=(),
        dynamic="1:40",
        batch="1:4",
        d_model=32,
        heads=2,
        latency=False,
        quiet=True,
    )
    report = build(request)
    (artifact,) = report.artifacts
    (runtime,) = artifact.runtimes
    lost = [case for case in runtime.cases if case.code is Code.PRECISION_LOST]
    assert {case.family for case in lost} == {"near-zero-denominator"}
    assert all(case.rounding is not None and case.rounding > 0.05 for case in lost)
    assert Code.PRECISION_LOST in {finding.code for finding in runtime.findings}
    assert report.exit_code is ExitCode.PASS, "a note: the artifact is as good as PyTorch"
    assert 37 in artifact.lengths, "by the other families"


def test_nothing_is_judged_where_eager_is_not_finite() -> None:
    allowed = Error(row=math.inf, whole=math.inf)
    for value in (1.0, np.nan):
        actual = np.full((2, 3), value, np.float16)
        assert compare(actual, np.ones((2, 3)), "float16", allowed).code is Code.INCONCLUSIVE


def test_every_method_meets_every_family() -> None:
    """A new method cannot leave the hostile families out: they depend on the model alone."""
    request = BuildRequest(methods=tuple(METHODS), models=("attention",), lengths=(),
                           dynamic="1:40", mask=True,
                           d_model=16, heads=2, options={"linformer": {"rank": 4}})  # fmt: skip
    subjects = make_subjects(request)
    assert {subject.method for subject in subjects} == set(METHODS)
    for subject in subjects:
        names = {family.name for family in subject.families}
        assert names == set(FAMILIES) - {"normal", "other-length", SAMPLES, EDGE}
