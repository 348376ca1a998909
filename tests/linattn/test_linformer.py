from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.testing import assert_close

import linattn
from linattn import MethodError, MultiHeadAttention
from linattn.methods.linformer import LinformerAttention, LinformerConfig

BATCH, HEADS, D, E = 2, 3, 4, 5
RANK, N_MAX = 6, 16


def build(rank: int = RANK, max_length: int = N_MAX) -> LinformerAttention:
    torch.manual_seed(0)
    module = LinformerAttention(LinformerConfig(rank=rank, max_length=max_length))
    return module.double()


def inputs(n: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(BATCH, HEADS, n, width, dtype=torch.float64, generator=generator)
        for width in (D, D, E)
    )
    return q, k, v


@pytest.mark.parametrize("n", [1, 2, 9, 15, 16])
def test_shorter_sequence_equals_zero_padding_of_keys_and_values(n: int) -> None:
    module = build()
    q, k, v = inputs(n)
    rows = (0, 0, 0, N_MAX - n)
    assert_close(module(q, k, v), module(q, pad(k, rows), pad(v, rows)), rtol=1e-12, atol=1e-14)


def test_left_padding_uses_the_last_columns() -> None:
    n = 9
    module = build()
    q, k, v = inputs(n)
    rows = (0, 0, N_MAX - n, 0)
    mask = (torch.arange(N_MAX) >= N_MAX - n).expand(BATCH, -1)
    padded = module(q, pad(k, rows, value=7.0), pad(v, rows, value=7.0), mask)
    assert not torch.allclose(padded, module(q, k, v), rtol=0.1)
    last = build(max_length=n)
    last.key_projection = nn.Parameter(module.key_projection[:, -n:].clone())
    last.value_projection = nn.Parameter(module.value_projection[:, -n:].clone())
    assert_close(padded, last(q, k, v), rtol=1e-12, atol=1e-14)


def test_projections_are_drawn_from_normal_with_variance_one_over_rank() -> None:
    module = build(rank=64, max_length=4096)
    for projection in (module.key_projection, module.value_projection):
        assert projection.shape == (64, 4096)
        assert projection.mean().item() == pytest.approx(0, abs=1e-3)
        assert projection.var().item() == pytest.approx(1 / 64, rel=0.01)
    assert not torch.equal(module.key_projection, module.value_projection)


@pytest.mark.parametrize("n", [1, 9, 16])
def test_at_length_keeps_only_the_columns_used(n: int) -> None:
    module = build().eval()
    short = linattn.at_length(module, n)
    shapes = {name: tuple(parameter.shape) for name, parameter in short.named_parameters()}
    assert shapes == {"key_projection": (RANK, n), "value_projection": (RANK, n)}
    assert torch.equal(short(*inputs(n)), module(*inputs(n)))
    assert not short.training


@pytest.mark.parametrize(
    "shorten",
    [lambda model: linattn.at_length(model, 9), lambda model: model[0].at_length(9)],
    ids=["the function", "the method"],
)
def test_at_length_leaves_the_original_alone(shorten: Callable[[nn.Module], nn.Module]) -> None:
    module = build()
    model = nn.Sequential(module)
    short = shorten(model)
    with torch.no_grad():
        for parameter in short.parameters():
            parameter.zero_()
    assert model[0] is module
    for parameter in module.parameters():
        assert parameter.shape == (RANK, N_MAX)
        assert parameter.count_nonzero() == parameter.numel()


def test_at_length_refuses_more_tokens_afterwards() -> None:
    short = linattn.at_length(build(), 9)
    with pytest.raises(ValueError, match=r"at most N_max = 9 tokens, got N = 10"):
        short(*inputs(10))


@pytest.mark.parametrize("wrap", [lambda m: m, nn.Sequential], ids=["itself", "inside another"])
def test_at_length_refuses_more_tokens_than_there_are_columns(
    wrap: type[nn.Sequential],
) -> None:
    with pytest.raises(ValueError, match=r"at most N_max = 16 tokens, got N = 17"):
        linattn.at_length(wrap(build()), 17)


def test_at_length_refuses_zero_tokens() -> None:
    with pytest.raises(MethodError, match="max_length must be at least 1, got 0"):
        linattn.at_length(build(), 0)


def test_at_length_of_a_layer_gives_the_same_output() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3, method="linformer", rank=RANK, max_length=N_MAX).double()
    short = linattn.at_length(layer, 9)
    x = torch.randn(BATCH, 9, 12, dtype=torch.float64)
    mask = torch.arange(9) < torch.tensor([[9], [4]])
    assert torch.equal(short(x), layer(x))
    assert torch.equal(short(x, mask), layer(x, mask))
    assert short.state_dict()["attention.key_projection"].shape == (RANK, 9)
    expected = "MultiHeadAttention(12, 3, method='linformer', rank=6, max_length=9)"
    assert repr(short) == expected


def test_at_length_of_a_layer_without_bound_is_a_copy() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3, method="elu")
    copied = linattn.at_length(layer, 9)
    assert copied is not layer
    assert repr(copied) == repr(layer)
    x = torch.randn(BATCH, 5, 12)
    assert torch.equal(copied(x), layer(x))


def test_at_length_reaches_layers_inside_a_model() -> None:
    torch.manual_seed(0)

    def layer() -> MultiHeadAttention:
        return MultiHeadAttention(12, 3, method="linformer", rank=RANK, max_length=N_MAX)

    model = nn.Sequential(layer(), nn.ReLU(), nn.Sequential(layer()))
    short = linattn.at_length(model, 9)
    x = torch.randn(BATCH, 9, 12)
    assert torch.equal(short(x), model(x))
    widths = {p.shape[1] for name, p in short.named_parameters() if "attention." in name}
    assert widths == {9}


def test_at_length_can_be_scripted() -> None:
    short = linattn.at_length(build(), 9)
    assert_close(torch.jit.script(short)(*inputs(9)), short(*inputs(9)), rtol=1e-12, atol=1e-14)


def test_at_length_draws_no_random_numbers_and_keeps_requires_grad() -> None:
    module = LinformerAttention(LinformerConfig(rank=3, max_length=9))
    module.value_projection.requires_grad_(False)
    state = torch.random.get_rng_state()
    short = module.at_length(4)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert short.key_projection.requires_grad
    assert not short.value_projection.requires_grad
    assert (module.max_length, module.key_projection.shape[1]) == (9, 9)
