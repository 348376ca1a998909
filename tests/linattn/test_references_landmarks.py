"""Performer and Nystrom attention against public packages (extra ``references``)."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from linattn import MultiHeadAttention

pytestmark = pytest.mark.references

BATCH, HEADS, WIDTH = 2, 4, 8
MODEL = HEADS * WIDTH
LANDMARKS = 8


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def performer_pytorch() -> Any:
    with warnings.catch_warnings():
        # distutils has been deprecated, and torch.cuda.amp.autocast.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return import_module("performer_pytorch.performer_pytorch")


def performers(kernel: str) -> tuple[Any, MultiHeadAttention]:
    """Theirs and ours with the same weights."""
    torch.manual_seed(0)
    theirs = performer_pytorch().SelfAttention(
        MODEL, heads=HEADS, dim_head=WIDTH, qkv_bias=True, generalized_attention=kernel == "relu"
    )
    theirs = theirs.double()
    eps = {"softmax": 1e-4, "relu": 1e-3}[kernel]
    ours = MultiHeadAttention(MODEL, HEADS, method="performer", kernel=kernel, eps=eps).double()
    packed = (theirs.to_q, theirs.to_k, theirs.to_v)
    ours.load_state_dict(
        {
            "in_proj_weight": torch.cat([x.weight for x in packed]),
            "in_proj_bias": torch.cat([x.bias for x in packed]),
            "attention.projection": theirs.fast_attention.projection_matrix,
            "out_proj.weight": theirs.to_out.weight,
            "out_proj.bias": theirs.to_out.bias,
        }
    )
    return theirs, ours


each_kernel = pytest.mark.parametrize("kernel", ["softmax", "relu"])


@each_kernel
@pytest.mark.parametrize("n", [1, 2, 31, 64, 500])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_performer_layer_equals_performer_pytorch(kernel: str, n: int, scale: float) -> None:
    theirs, ours = performers(kernel)
    x = scale * normal(BATCH, n, MODEL)
    assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-11)


def test_as_many_features_as_theirs() -> None:
    for width in (1, 2, 3, 8, 64, 100):
        theirs = performer_pytorch().FastAttention(width) if width > 2 else None
        ours = MultiHeadAttention(width, 1, method="performer").state_dict()
        expected = 1 if theirs is None else theirs.nb_features
        assert ours["attention.projection"].shape == (expected, width)


@each_kernel
def test_performer_pytorch_lets_padding_into_its_normaliser_and_ours_does_not(kernel: str) -> None:
    theirs, ours = performers(kernel)
    x = normal(1, 12, MODEL)
    mask = torch.arange(12).unsqueeze(0) < 9
    other = torch.where(mask.unsqueeze(-1), x, 3 * normal(1, 12, MODEL, seed=1))
    moved = (theirs(other, mask=mask) - theirs(x, mask=mask))[mask]
    assert moved.abs().max() > 1e-3, "public code masks the values only"
    assert torch.equal(ours(other, mask)[mask], ours(x, mask)[mask])
    assert_close(ours(x, mask)[:, :9], ours(x[:, :9]), rtol=1e-10, atol=1e-12)
    assert_close(ours(x[:, :9]), theirs(x[:, :9]), rtol=1e-9, atol=1e-11)


def nystrom_pair(
    *, kernel: int | None = 33, heads: int = HEADS, iterations: int = 6, shared: bool = True
) -> tuple[Any, MultiHeadAttention]:
    """Theirs, whose eps beside a count of tokens is left out, and ours with the same weights."""
    torch.manual_seed(0)
    theirs = import_module("nystrom_attention.nystrom_attention").NystromAttention(
        MODEL,
        dim_head=MODEL // heads,
        heads=heads,
        num_landmarks=LANDMARKS,
        pinv_iterations=iterations,
        residual=kernel is not None,
        residual_conv_kernel=33 if kernel is None else kernel,
        eps=0.0,
    )
    theirs = theirs.double()
    ours = MultiHeadAttention(
        MODEL,
        heads,
        method="nystrom",
        landmarks=LANDMARKS,
        iterations=iterations,
        kernel=kernel,
        shared_scale=shared,
    ).double()
    weights = {
        "in_proj_weight": theirs.to_qkv.weight,
        "in_proj_bias": torch.zeros(3 * MODEL, dtype=torch.float64),
        "out_proj.weight": theirs.to_out[0].weight,
        "out_proj.bias": theirs.to_out[0].bias,
    }
    if kernel is not None:
        weights["attention.kernels"] = theirs.res_conv.weight
    ours.load_state_dict(weights)
    return theirs, ours


def one_by_one(module: nn.Module, x: Tensor, **more: Any) -> Tensor:
    return torch.cat([module(x[b : b + 1], **more) for b in range(len(x))])


@pytest.mark.parametrize("kernel", [None, 5, 33])
@pytest.mark.parametrize("n", [LANDMARKS * k for k in (1, 2, 7, 64)])
def test_nystrom_layer_equals_nystrom_attention(kernel: int | None, n: int) -> None:
    theirs, ours = nystrom_pair(kernel=kernel)
    x = normal(BATCH, n, MODEL)
    # One sequence at a time: theirs starts its inverse with the largest sum of the whole batch.
    assert_close(ours(x), one_by_one(theirs, x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("n", [LANDMARKS, 10 * LANDMARKS])
def test_nystrom_of_one_head_of_one_sequence(n: int, shared: bool) -> None:
    theirs, ours = nystrom_pair(heads=1, shared=shared)
    x = normal(1, n, MODEL)
    assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n", [50, 61, 63, 65, 100, 503])
def test_other_lengths_equal_nystrom_attention_where_it_is_told_what_it_pads(n: int) -> None:
    theirs, ours = nystrom_pair()
    x = normal(BATCH, n, MODEL)
    every = torch.ones(1, n, dtype=torch.bool)
    with first_segment_holds_a_token(n):
        assert_close(ours(x), one_by_one(theirs, x, mask=every), rtol=1e-9, atol=1e-10)


@contextmanager
def first_segment_holds_a_token(n: int) -> Iterator[None]:
    """Otherwise theirs has a landmark of nothing."""
    size = math.ceil(n / LANDMARKS)
    assert n > (LANDMARKS - 1) * size
    yield


@pytest.mark.parametrize("n", [3, 63, 65])
def test_nystrom_attention_counts_its_own_padding_and_ours_does_not(n: int) -> None:
    theirs, ours = nystrom_pair(kernel=None)
    x = normal(1, n, MODEL)
    every = torch.ones(1, n, dtype=torch.bool)
    assert (theirs(x) - theirs(x, mask=every)).abs().max() > 1e-3
    assert_close(ours(x), ours(x, every), rtol=1e-10, atol=1e-12)


def test_nystrom_attention_depends_on_the_batch_and_ours_does_not() -> None:
    theirs, ours = nystrom_pair()
    x = normal(2, 32, MODEL)
    x[1] *= 30
    assert (theirs(x)[:1] - theirs(x[:1])).abs().max() > 1e-3
    assert_close(ours(x)[:1], ours(x[:1]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [5, 40, 41])
def test_padding_changes_nystrom_attention_and_not_ours(n: int) -> None:
    """Their segments are of positions, so that padding moves tokens to other segments."""
    theirs, ours = nystrom_pair()
    x = normal(1, n, MODEL)
    padded = torch.cat((x, normal(1, 24, MODEL, seed=1)), dim=1)
    mask = torch.arange(n + 24).unsqueeze(0) < n
    every = torch.ones(1, n, dtype=torch.bool)
    assert (theirs(padded, mask=mask)[:, :n] - theirs(x, mask=every)).abs().max() > 1e-3
    assert_close(ours(padded, mask)[:, :n], ours(x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n", [3, 8, 40])
def test_the_inverse_converges_to_what_theirs_does(n: int) -> None:
    """With a landmark of nothing, where the two take other ways."""
    theirs, ours = nystrom_pair(iterations=40, kernel=None)
    x = normal(1, n, MODEL)
    every = torch.ones(1, n, dtype=torch.bool)
    theirs.eps = 1e-300
    assert_close(ours(x), theirs(x, mask=every), rtol=1e-6, atol=1e-6)
