import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from linattn import METHODS
from linattn.methods.softmax import SoftmaxAttention, SoftmaxConfig
from linattn.numerics import (
    column_mask,
    elu_plus_one,
    lower_masked,
    token_sum,
    unit_rows,
    widen,
    zero_masked,
)
from linattn_export.golden.plain_sums import PlainSums


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def attend(name: str, *inputs: Tensor, **options: object) -> Tensor:
    record = METHODS[name]
    output: Tensor = record.module(record.configure(options))(*inputs)
    return output


def ulps_from_exp(features: Tensor, x: Tensor) -> float:
    exact = torch.exp(x.double())
    return float(((features.double() - exact) / exact).abs().max()) / torch.finfo(x.dtype).eps


@pytest.mark.parametrize("x", [-5.0, -10.0, -17.0, -20.0, -40.0, -80.0])
def test_elu_plus_one_does_not_cancel(x: float) -> None:
    points = x + torch.linspace(0, 1, 101)
    assert ulps_from_exp(elu_plus_one(points), points) < 4
    assert ulps_from_exp(torch.nn.functional.elu(points) + 1, points) > 20


def test_elu_plus_one_is_elu_plus_one() -> None:
    x = torch.linspace(-5, 5, 1001, dtype=torch.float64)
    assert_close(elu_plus_one(x), torch.nn.functional.elu(x) + 1, rtol=1e-13, atol=0)
    ends = torch.tensor([-math.inf, 0.0, math.inf])
    assert elu_plus_one(ends).tolist() == [0, 1, math.inf]


def test_elu_plus_one_has_the_gradient_of_elu() -> None:
    x = torch.tensor([-100.0, -1.0, -1e-6, 1e-6, 1.0, 100.0], requires_grad=True)
    (ours,) = torch.autograd.grad(elu_plus_one(x).sum(), x)
    (naive,) = torch.autograd.grad(torch.nn.functional.elu(x).sum(), x)
    assert_close(ours, naive)


def test_elu_weights_of_very_negative_keys_are_not_rounded_away() -> None:
    # exp(-30) = 9e-14 and exp(-31): the second key has e times less weight than the first.
    query, key = torch.ones(1, 1), torch.tensor([[-30.0], [-31.0]])
    output = attend("elu", query, key, torch.tensor([[1.0], [0.0]]), eps=1e-30)
    assert output.item() == pytest.approx(math.e / (math.e + 1), rel=1e-5)


def test_unit_rows_have_length_one_and_zero_rows_stay_zero() -> None:
    x = normal(3, 4)
    x[1] = 0
    assert_close(unit_rows(x, 1e-12).norm(dim=-1), torch.tensor([1.0, 0.0, 1.0]).double())


def test_unit_rows_below_eps_are_divided_by_eps() -> None:
    x = torch.tensor([[3e-8, 4e-8]], dtype=torch.float64)
    assert_close(unit_rows(x, 1e-6), x / 1e-6)


def test_unit_rows_have_finite_gradients_at_zero_rows() -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(unit_rows(x, 1e-6).sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_widen_gives_float32_for_half_precision(dtype: torch.dtype) -> None:
    assert widen(torch.ones(1, dtype=dtype)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_widen_leaves_other_dtypes_alone(dtype: torch.dtype) -> None:
    x = torch.ones(1, dtype=dtype)
    assert widen(x) is x


@pytest.mark.parametrize(
    ("key", "mask", "column"),
    [((5, 4), (5,), (5, 1)), ((2, 5, 4), (2, 5), (2, 5, 1)), ((2, 3, 5, 4), (2, 5), (2, 1, 5, 1))],
    ids=["[N,D]", "[B,N,D]", "[B,H,N,D]"],
)
def test_column_mask_broadcasts_to_the_keys(
    key: tuple[int, ...], mask: tuple[int, ...], column: tuple[int, ...]
) -> None:
    assert column_mask(torch.ones(mask, dtype=torch.bool), torch.zeros(key)).shape == column


def test_zero_masked_clears_nan_and_inf() -> None:
    x = torch.tensor([[math.nan], [math.inf], [7.0]])
    kept = torch.tensor([[False], [False], [True]])
    assert zero_masked(x, kept).tolist() == [[0.0], [0.0], [7.0]]


def test_softmax_over_masked_logits_alone_is_uniform() -> None:
    logits = lower_masked(torch.tensor([1.0, math.nan, -math.inf]), torch.zeros(3).bool())
    assert_close(torch.softmax(logits, dim=0), torch.full((3,), 1 / 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("zero", ["query", "key"])
def test_taylor_gives_a_zero_row_the_weight_one(zero: str, dtype: torch.dtype) -> None:
    query, key, value = normal(3, 4, dtype=dtype), normal(5, 4, dtype=dtype), normal(5, 2)
    value = value.to(dtype)
    if zero == "query":
        query[1] = 0
        expected = value.mean(dim=0)  # every key has weight 1
        assert_close(attend("taylor", query, key, value)[1], expected)
    else:
        key[:] = 0
        expected = value.mean(dim=0).expand(3, 2)
        assert_close(attend("taylor", query, key, value), expected)
    assert attend("taylor", query, key, value).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_taylor_is_finite_where_the_only_key_opposes_the_query(dtype: torch.dtype) -> None:
    query = normal(200, 1, 3).to(dtype)
    value = normal(200, 1, 2).to(dtype)
    assert attend("taylor", query, -query, value).isfinite().all()


def test_taylor_counts_real_tokens_only() -> None:
    query, key, value = normal(3, 4), normal(5, 4), torch.ones(5, 1).double()
    mask = torch.tensor([True, True, False, False, False])
    assert_close(attend("taylor", query, key, value, mask), torch.ones(3, 1).double())


def test_elu_without_normalize_is_the_plain_product() -> None:
    query, key, value = normal(7, 4), normal(7, 4).flip(0), normal(7, 2)
    phi = torch.nn.ELU()
    expected = (phi(query) + 1) @ ((phi(key) + 1).T @ value)
    assert_close(attend("elu", query, key, value, normalize=False), expected)
    normaliser = (phi(query) + 1) @ (phi(key) + 1).sum(dim=0, keepdim=True).T
    assert_close(attend("elu", query, key, value), expected / normaliser, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["elu", "relu"])
def test_eps_is_added_to_the_normaliser(name: str) -> None:
    ones = torch.ones(1, 1)  # features of a query and a key of 1: 2 * 2 for elu, 1 * 1 for relu
    weight = {"elu": 4.0, "relu": 1.0}[name]
    output = attend(name, ones, ones, ones, eps=0.5)
    assert output.item() == pytest.approx(weight / (weight + 0.5))


def test_relu_query_without_positive_features_gives_zero() -> None:
    assert attend("relu", -torch.ones(2, 4), torch.ones(3, 4), torch.ones(3, 2)).eq(0).all()


@pytest.mark.parametrize("scale", [None, 0.3, 2.0])
def test_softmax_weights_sum_to_one(scale: float | None) -> None:
    module = SoftmaxAttention(SoftmaxConfig(scale=scale))
    weights = module.weights(100 * normal(2, 7, 4), 100 * normal(2, 5, 4), None)
    assert weights.shape == (2, 7, 5)
    assert_close(weights.sum(dim=-1), torch.ones(2, 7).double())


def test_softmax_weights_of_masked_keys_are_zero() -> None:
    module = SoftmaxAttention(SoftmaxConfig())
    kept = torch.tensor([True, False, True, False, True])
    weights = module.weights(normal(7, 4), normal(5, 4), kept.unsqueeze(-1))
    assert weights[:, ~kept].eq(0).all()
    assert_close(weights.sum(dim=-1), torch.ones(7).double())


def test_softmax_survives_logits_far_beyond_exp() -> None:
    query = 1e4 * normal(5, 4, dtype=torch.float32)
    assert attend("softmax", query, query, torch.eye(5)).isfinite().all()


@pytest.mark.parametrize("axes", [(), (3,), (3, 2)], ids=["[N,D]", "[B,N,D]", "[B,H,N,D]"])
def test_efficient_normalises_the_keys_over_tokens(axes: tuple[int, ...]) -> None:
    query, key = normal(*axes, 7, 4), normal(*axes, 7, 4)
    # Weights that sum to one over the tokens give back a value that all tokens share.
    value = torch.ones(*axes, 7, 2).double()
    assert_close(attend("efficient", query, key, value), value)
    # A shift of a whole key column, over all tokens of one sequence, is no difference.
    shifted = key + torch.arange(4.0).double() * normal(*axes, 1, 1)
    value = normal(*axes, 7, 2)
    output = attend("efficient", query, key, value)
    assert_close(attend("efficient", query, shifted, value), output)


def test_efficient_does_not_overflow_where_exp_would() -> None:
    x = 200 + normal(5, 4, dtype=torch.float32)
    assert x.exp().isinf().all()
    assert attend("efficient", x, x, torch.ones(5, 2)).isfinite().all()


def lost(total: Tensor, exact: Tensor) -> float:
    return float(torch.linalg.vector_norm(total - exact) / torch.linalg.vector_norm(exact))


@pytest.mark.parametrize("n", [16_384, 65_536])
def test_a_token_sum_does_not_lose_what_sums_in_order_lose(n: int) -> None:
    """One row of ones, and a plain sum in ONNX Runtime, add up row after row.

    That loses about sqrt(n / 2) roundings; blocks of a few hundred rows, as products are taken in,
    the square root of such a block, whatever n is.
    """
    x = torch.randn(2, n, 16, generator=torch.Generator().manual_seed(n))
    exact = x.double().sum(dim=-2, keepdim=True)
    with PlainSums():  # type: ignore[no-untyped-call]
        in_order = lost(x.sum(dim=-2, keepdim=True), exact)
    assert 3 * lost(token_sum(x), exact) < in_order
