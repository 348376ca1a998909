"""What is Performer's own: its projection, and what it estimates."""

import re

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from linattn import METHODS, MethodError, MultiHeadAttention, method
from linattn.methods.performer import PerformerAttention, PerformerConfig


def inputs(n: int, width: int, batch: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    q, k, v = torch.randn(3, batch, n, width, dtype=torch.float64, generator=generator)
    return q, k, v


def built(**options: object) -> PerformerAttention:
    torch.manual_seed(0)
    return PerformerAttention(PerformerConfig(**options)).double()  # type: ignore[arg-type]


def test_the_projection_is_saved_and_neither_trained_nor_drawn_again() -> None:
    module = built(head_dim=8).train()
    before = module.projection.clone()
    q, k, v = inputs(20, 8)
    state = torch.random.get_rng_state()
    assert torch.equal(module(q, k, v), module(q, k, v))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(module.projection, before)
    assert list(module.state_dict()) == ["projection"]
    assert not list(module.parameters())
    other = PerformerAttention(PerformerConfig(head_dim=8)).double()
    assert not torch.allclose(other(q, k, v), module(q, k, v), rtol=1e-3)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(q, k, v), module(q, k, v))


def test_the_seed_draws_the_projection() -> None:
    assert torch.equal(built(head_dim=8).projection, built(head_dim=8).projection)


@pytest.mark.parametrize(("features", "width"), [(16, 8), (19, 8), (3, 8), (5, 1)])
def test_rows_are_orthogonal_in_blocks_of_the_width(features: int, width: int) -> None:
    rows = built(features=features, head_dim=width).projection
    assert rows.shape == (features, width)
    for start in range(0, features, width):
        block = rows[start : start + width]
        products = block @ block.T
        assert_close(products, torch.diag(products.diagonal()), rtol=0, atol=1e-5)
        assert products.diagonal().min() > 0


def test_rows_are_as_long_as_gaussian_ones_and_point_everywhere() -> None:
    width = 8
    rows = built(features=8 * 4000, head_dim=width).projection
    squares = rows.square().sum(1)
    assert squares.mean().item() == pytest.approx(width, rel=0.02)
    assert squares.var().item() == pytest.approx(2 * width, rel=0.05)  # chi-square
    assert_close(rows.T @ rows / len(rows), torch.eye(width).double(), rtol=0, atol=0.03)
    # Without the signs of R, a Q of QR has a first column that leans to one side.
    assert rows.mean(0).abs().max() < 0.03


@pytest.mark.parametrize(("width", "features"), [(1, 1), (2, 1), (3, 3), (8, 16), (64, 266)])
def test_features_are_d_ln_d_unless_given(width: int, features: int) -> None:
    assert built(head_dim=width).projection.shape == (features, width)


def test_many_features_give_softmax_attention() -> None:
    q, k, v = (0.3 * x for x in inputs(40, 4))
    exact = METHODS["softmax"].module(METHODS["softmax"].configure({}))(q, k, v)
    errors = []
    for features in (400, 20_000):
        estimate = built(head_dim=4, features=features, eps=1e-9)(q, k, v)
        errors.append(float((estimate - exact).norm() / exact.norm()))
    assert errors[1] < 0.01
    assert errors[1] < errors[0] / 3


def test_eps_is_added_to_every_feature() -> None:
    """One feature W = 1, of a query 0 and keys 0 and -50: 1 + eps, and eps alone."""
    module = built(head_dim=1, features=1, eps=0.25)
    module.projection.fill_(1.0)
    key, value = (torch.tensor([[a], [b]]).double() for a, b in ((0.0, -50.0), (1.0, 0.0)))
    output = module(torch.zeros(1, 1).double(), key, value)
    assert output.item() == pytest.approx(1.25 / (1.25 + 0.25))


def test_a_layer_gives_the_method_its_head_width() -> None:
    layer = MultiHeadAttention(24, 3, method="performer")
    assert layer.attention.config == PerformerConfig(head_dim=8)
    assert "head_dim" not in repr(layer)
    with pytest.raises(MethodError, match=r"performer.head_dim must be 8, as the layer has it"):
        MultiHeadAttention(24, 3, method="performer", head_dim=64)


def test_another_width_of_the_queries_is_refused() -> None:
    with pytest.raises(ValueError, match=r"built for head_dim = 8, got query .*; build it with"):
        built(head_dim=8)(*inputs(5, 4))


def test_an_unknown_kernel_lists_the_known() -> None:
    message = re.escape("performer.kernel must be 'softmax' or 'relu', got 'elu'")
    with pytest.raises(MethodError, match=message):
        method("performer").configure({"kernel": "elu"})


@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0, 1e4])
def test_a_masked_key_that_is_larger_than_all_others_is_not_the_stabiliser(scale: float) -> None:
    """In float32: with its maximum subtracted, every real feature would round to eps."""
    torch.manual_seed(0)
    module = PerformerAttention(PerformerConfig(head_dim=4))
    q, k, v = (scale * x.float() for x in inputs(9, 4))
    k[:, -1] = 1e6 * torch.sign(module.projection[0])
    mask = torch.arange(9).unsqueeze(0) < 8
    output = module(q, k, v, mask)
    assert_close(output, module(q, k[:, :8], v[:, :8]), rtol=1e-5, atol=1e-6 * scale)
    assert output.isfinite().all()


def test_gradients_of_a_fully_masked_sequence_are_finite() -> None:
    for kernel in ("softmax", "relu"):
        module = PerformerAttention(PerformerConfig(head_dim=4, kernel=kernel))
        leaves = [x.float().requires_grad_() for x in inputs(9, 4)]
        output = module(*leaves, torch.zeros(1, 9, dtype=torch.bool))
        for gradient in torch.autograd.grad((1e6 * output).sum(), leaves):
            assert gradient.isfinite().all()
        assert output.eq(0).all()
