"""Inputs and outputs with several axes of tokens or sequences, such as a bias of attention."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from linattn_export import export_module
from linattn_export.golden.known import batch_axes
from linattn_export.inputs.drawing import draw
from linattn_export.inputs.families import FAMILIES
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_models import InputSpec
from linattn_runtime_checks.contract import token_axes
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.golden_pack import repeated
from linattn_runtime_checks.contract.manifest import TensorSpec
from siblings import siblings

AXES: list[tuple[str | int, ...]] = [
    ("batch", "sequence"), ("sequence", "batch", 2), ("batch", "sequence", "sequence"),
    ("sequence", "sequence", "batch"), ("sequence", "batch", "sequence"),
    ("batch", 2, "sequence", "sequence"), ("batch", "batch", "sequence"), ("batch", "batch"),
    ("sequence", "sequence"), ("batch", 3),
]  # fmt: skip
SIZES = {"batch": 3, "sequence": 7}


def spec_of(axes: tuple[str | int, ...]) -> TensorSpec:
    return TensorSpec(name="x", dtype="float32", shape=list(axes), axes=list(axes))


def numbered(axes: tuple[str | int, ...]) -> np.ndarray[Any, Any]:
    shape = sized(axes)
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def sized(axes: tuple[str | int, ...], **sizes: int) -> tuple[int, ...]:
    known = SIZES | sizes
    return tuple(known[axis] if isinstance(axis, str) else axis for axis in axes)


def places(axes: tuple[str | int, ...]) -> Any:
    """Every index, with its sequences and its tokens."""
    for index in itertools.product(*map(range, numbered(axes).shape)):
        rows = [at for at, axis in zip(index, axes, strict=True) if axis == "batch"]
        tokens = [at for at, axis in zip(index, axes, strict=True) if axis == "sequence"]
        yield index, rows, tokens


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_what_belongs_to_which_token(axes: tuple[str | int, ...]) -> None:
    x, spec = numbered(axes), spec_of(axes)
    mask = np.random.default_rng(0).random((3, 7)) > 0.4
    order = np.random.default_rng(1).permutation(7)
    spread = token_axes.spread(mask, spec, x.shape)
    reordered = token_axes.reordered(x, spec, order)
    another = token_axes.another_from(x, spec, 4)
    until = token_axes.until(x, spec, 4)
    part = token_axes.rows_of(x, spec, 1, 2)
    for index, rows, tokens in places(axes):
        assert spread[index] == all(mask[row, token] for row in rows for token in tokens)
        source = tuple(
            order[at] if axis == "sequence" else at for at, axis in zip(index, axes, strict=True)
        )
        assert reordered[index] == x[source]
        assert (another[index] != x[index]) == any(token >= 4 for token in tokens)
        if all(token < 4 for token in tokens):
            assert until[index] == x[index]
        if all(row >= 1 for row in rows):
            moved = tuple(at - (axis == "batch") for at, axis in zip(index, axes, strict=True))
            assert part[moved] == x[index]
    assert until.shape == sized(axes, sequence=4)
    assert part.shape == sized(axes, batch=2)


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_every_family_can_be_drawn(axes: tuple[str | int, ...]) -> None:
    specs = (
        InputSpec(name="x", axes=axes),
        InputSpec(name="attention_mask", axes=("batch", "sequence"), kind="mask"),
    )
    plain = draw(specs, SIZES, family="normal", dtype=torch.float32, seed=0)["x"]
    for name, family in FAMILIES.items():
        if not family.directed:
            drawn = draw(specs, SIZES, family=name, dtype=torch.float32, seed=0)
            assert drawn["x"].shape == plain.shape
            assert drawn["x"].isfinite().all()
    zero = draw(specs, SIZES, family="zero-rows", dtype=torch.float32, seed=0)["x"]
    huge = draw(specs, SIZES, family="huge-token", dtype=torch.float64, seed=0)["x"]
    constant = draw(specs, SIZES, family="constant-rows", dtype=torch.float32, seed=0)["x"]
    padded = draw(specs, SIZES, family="one-token", dtype=torch.float32, seed=0)
    mask = padded["attention_mask"]
    inside: list[float] = []
    outside: list[float] = []
    for index, rows, tokens in places(axes):
        assert (zero[index] == 0) == any(token % 2 == 0 for token in tokens)
        assert (abs(float(huge[index])) > 60) == (6 in tokens) or abs(float(huge[index])) < 300
        first = tuple(0 if axis == "sequence" else at for at, axis in zip(index, axes, strict=True))
        assert constant[index] == constant[first]
        real = all(mask[row, token] for row in rows for token in tokens)
        (inside if real else outside).append(abs(float(padded["x"][index])))
    if outside and len(inside) > 2:
        assert np.mean(outside) > 3 * np.mean(inside), "padding is enlarged, so that a leak shows"


class Biased(nn.Module):
    """Attention with a bias for each pair of tokens; it returns its weights too."""

    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project = nn.Linear(8, 24)
        self.causal = causal

    def forward(self, x: Tensor, bias: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.where(attention_mask[..., None], x, 0)
        pairs = attention_mask[:, :, None] & attention_mask[:, None]
        q, k, v = self.project(x).chunk(3, -1)
        scores = q @ k.mT + torch.where(pairs, bias, 0)
        if self.causal:
            places = torch.arange(x.size(1))
            pairs = pairs & (places[:, None] >= places)
        weights = scores.masked_fill(~pairs, -1e4).softmax(-1) * pairs
        return weights @ v, weights


BIASED: dict[str, Any] = {
    "symbols": {"batch": "1:4", "sequence": "1:24"},
    "inputs": {
        "x": {"shape": ["batch", "sequence", 8]},
        "bias": {"shape": ["batch", "sequence", "sequence"]},
        "attention_mask": {"kind": "mask", "shape": ["batch", "sequence"]},
    },
}


@pytest.mark.parametrize("promise", siblings(["permutation_equivariant", "causal"]))
def test_an_attention_bias_is_judged_like_any_other_input(promise: str, tmp_path: Path) -> None:
    report = export_module(
        Biased(causal=promise == "causal"),
        BIASED | {"promises": {promise: True}},
        tmp_path / "out",
        formats=["onnx"],
        latency=False,
        quiet=True,
    )
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    names = {check.name for check in report.artifacts[0].runtimes[0].checks}
    kept = "causal" if promise == "causal" else "equivariant"
    assert {"padding", "alone", kept} <= names


class Pairs(nn.Module):
    """A number for every two rows of a batch."""

    def forward(self, x: Tensor, between: Tensor) -> Tensor:
        return x * 2 + between.diagonal()[:, None, None]


def test_a_pack_repeats_both_axes_of_a_batch() -> None:
    inputs = {
        "symbols": {"batch": "1:4", "sequence": "1:24"},
        "inputs": {
            "x": {"shape": ["sequence", "batch", 8]},
            "between": {"shape": ["batch", "batch"]},
        },
    }

    class Turned(Pairs):
        def forward(self, x: Tensor, between: Tensor) -> Tensor:
            return super().forward(x.transpose(0, 1), between).transpose(0, 1)

    subject = make_subject(Turned(), read_spec(inputs), BuildRequest(), "net", "net")
    assert batch_axes(subject) == {"x": 1, "between": [0, 1], "output": 1}
    small = np.arange(4).reshape(2, 2)
    assert repeated(small, 3, [0, 1]).tolist() == [[0, 1, 0], [2, 3, 2], [0, 1, 0]]
    assert repeated(small, 3, None) is small
    assert repeated(small, 3, 1).shape == (2, 3)
