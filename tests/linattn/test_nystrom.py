"""What is Nystrom attention's own: segments, the inverse, the convolution, the rows."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from linattn import METHODS, MethodError, MultiHeadAttention
from linattn.methods.nystrom import NystromAttention, NystromConfig

WIDTH = 4


def inputs(n: int, *axes: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    q, k, v = torch.randn(3, *axes, n, WIDTH, dtype=torch.float64, generator=generator)
    return q, k, v


def built(**options: Any) -> NystromAttention:
    torch.manual_seed(0)
    return NystromAttention(NystromConfig(**options)).double()


@pytest.mark.parametrize("m", [1, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 24, 25, 63, 64, 65])
def test_segments_take_every_token_once_in_order_from_the_end(m: int, n: int) -> None:
    module, key = built(landmarks=m), torch.zeros(n, WIDTH)
    members, counts = module.segments(module.rank(key, None), key)
    size = math.ceil(n / m)
    expected = [max(min(size, n - size * before), 0) for before in range(m)][::-1]
    assert counts.tolist() == expected
    assert members.sum(1).tolist() == expected
    assert members.sum(0).tolist() == [1] * n
    place = members.argmax(0)
    assert torch.equal(place, place.sort().values)


@pytest.mark.parametrize("n", [1, 5, 8])
def test_a_landmark_for_every_token_gives_softmax_attention(n: int) -> None:
    """A A^+ A = A, once the iteration has converged."""
    q, k, v = inputs(n, 2, 3)
    exact = METHODS["softmax"].module(METHODS["softmax"].configure({}))(q, k, v)
    output = built(landmarks=8, iterations=40, kernel=None)(q, k, v)
    assert_close(output, exact, rtol=1e-6, atol=1e-6)
    if n > 1:
        early = built(landmarks=8, iterations=1, kernel=None)(q, k, v)
        assert not torch.allclose(early, exact, rtol=1e-3)


def test_the_iteration_nears_the_pseudo_inverse() -> None:
    q, k, _ = inputs(WIDTH)
    a = torch.softmax(q @ k.T, dim=-1)
    distance = [
        float((built(iterations=count).inverse(a) - torch.linalg.pinv(a)).norm())
        for count in (2, 4, 12)
    ]
    assert distance[0] > distance[1] > distance[2]
    assert distance[2] < 1e-10
    zeros = torch.zeros(3, 3, dtype=torch.float64)
    assert built().inverse(zeros).eq(0).all()


@pytest.mark.parametrize("n", [1, 7, 63, 64, 65])
@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "holes"])
def test_row_i_is_of_token_i(n: int, masked: bool) -> None:
    """A convolution with one tap, of the token itself, adds V row by row."""
    module, plain = built(landmarks=8, kernel=5), built(landmarks=8, kernel=None)
    assert module.kernels is not None
    with torch.no_grad():
        module.kernels.zero_()
        module.kernels[:, :, 2] = 1.0
    q, k, v = inputs(n, 2)
    mask = torch.rand(2, n, generator=torch.Generator().manual_seed(n)) < 0.6 if masked else None
    added = module(q, k, v, mask) - plain(q, k, v, mask)
    real = torch.ones_like(v) if mask is None else mask.unsqueeze(-1)
    assert_close(added, v * real, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [7, 63, 64, 65])
def test_equal_queries_have_equal_rows_and_others_have_others(n: int) -> None:
    """A row that belonged to another token would break the pattern."""
    q, k, v = inputs(n)
    kind = torch.randint(3, [n], generator=torch.Generator().manual_seed(n))
    rows = built(landmarks=8, kernel=None)(q[kind], k, v)
    for i in range(3):
        of_kind = rows[kind == i]
        assert_close(of_kind, of_kind[:1].expand_as(of_kind))
    apart = torch.pdist(torch.stack([rows[kind == i][0] for i in range(3)]))
    assert apart.min() > 1e-3


def test_the_window_of_a_token_skips_what_is_masked() -> None:
    module, plain = built(landmarks=8, kernel=3), built(landmarks=8, kernel=None)
    assert module.kernels is not None
    taps = module.kernels.detach().flatten()
    q, k, v = inputs(5, 1)
    mask = torch.tensor([[False, True, False, True, True]])
    added = (module(q, k, v, mask) - plain(q, k, v, mask))[0]
    one, two, three = v[0, 1], v[0, 3], v[0, 4]
    assert_close(added[1], taps[1] * one + taps[2] * two)
    assert_close(added[3], taps[0] * one + taps[1] * two + taps[2] * three)
    assert added[[0, 2]].eq(0).all()


def test_one_start_for_all_heads_or_one_for_each() -> None:
    q, k, v = inputs(20, 2, 3)
    shared, own = (built(landmarks=4, kernel=None, shared_scale=each) for each in (True, False))
    assert not torch.allclose(shared(q, k, v), own(q, k, v), rtol=1e-6)
    for h in range(3):
        head = slice(h, h + 1)
        assert_close(own(q, k, v)[:, head], own(q[:, head], k[:, head], v[:, head]))
    for b in range(2):
        one = slice(b, b + 1)
        assert_close(shared(q, k, v)[one], shared(q[one], k[one], v[one]))


def test_a_layer_gives_the_method_its_heads() -> None:
    layer = MultiHeadAttention(12, 3, method="nystrom")
    assert layer.attention.config == NystromConfig(heads=3)
    assert layer.state_dict()["attention.kernels"].shape == (3, 1, 33, 1)
    assert "heads=" not in repr(layer)


@pytest.mark.parametrize("axes", [(), (2,), (2, 5)], ids=str)
def test_kernels_of_another_number_of_heads_are_refused(axes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"kernel for each of 3 heads, got value .*heads=1"):
        built(heads=3)(*inputs(9, *axes))


def test_an_even_kernel_is_refused() -> None:
    with pytest.raises(MethodError, match=r"nystrom.kernel must be odd, got 4"):
        NystromConfig(kernel=4)


def test_fewer_queries_than_keys_are_refused() -> None:
    q, k, v = inputs(9, 2)
    with pytest.raises(ValueError, match=r"nystrom needs a query for every key"):
        built()(q[:, :5], k, v)
