"""The layer around a method: heads, projections, masks."""

import contextlib
import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.testing import assert_close

from layer_cases import (
    BATCH,
    HEADS,
    N_MAX,
    M,
    N,
    build,
    each_masking,
    each_method,
    real_tokens,
    tokens,
    with_random_biases,
)
from linattn import METHODS, MethodError, MultiHeadAttention
from linattn_export.capture.program import sizes_may_be_one


@each_method
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_repr_is_the_call_that_built_it(name: str, bias: bool) -> None:
    layer = build(name, bias=bias)
    rebuilt = eval(repr(layer), {"MultiHeadAttention": MultiHeadAttention})
    assert repr(rebuilt) == repr(layer)
    shapes = [{key: x.shape for key, x in m.state_dict().items()} for m in (layer, rebuilt)]
    assert shapes[0] == shapes[1]


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(MultiHeadAttention(8, 2)) == "MultiHeadAttention(8, 2, method='elu')"
    layer = MultiHeadAttention(8, 2, method="elu", bias=False, normalize=False)
    assert repr(layer) == "MultiHeadAttention(8, 2, method='elu', bias=False, normalize=False)"


@each_method
@each_masking
def test_each_head_attends_to_its_own_slice(name: str, masked: bool) -> None:
    layer = build(name)
    x, mask = tokens(), real_tokens() if masked else None
    packed = nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias)
    q, k, v = packed.tensor_split(3, dim=-1)
    width = M // HEADS
    slices = [
        torch.stack([y[..., h * width : (h + 1) * width] for h in range(HEADS)], dim=1)
        for y in (q, k, v)
    ]
    heads = layer.attention(*slices, mask).unbind(dim=1)
    expected = layer.out_proj(torch.cat(heads, dim=-1))
    real = slice(None) if mask is None else mask.any(dim=1)
    assert_close(layer(x, mask)[real], expected[real])


@each_method
def test_empty_sequence_gives_exactly_zero_though_the_projections_have_biases(name: str) -> None:
    output = build(name)(tokens(), real_tokens())
    assert output[1].eq(0).all()
    assert output[0].count_nonzero() == output[0].numel()
    assert output.isfinite().all()


@each_method
def test_padding_may_hold_nan(name: str) -> None:
    layer, mask = build(name), real_tokens()
    x = tokens()
    dirty = x.masked_fill(mask.logical_not().unsqueeze(-1), math.nan)
    assert torch.equal(layer(dirty, mask)[mask], layer(x, mask)[mask])
    assert layer(dirty, mask)[1].eq(0).all()


@each_method
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_half_precision_layers_return_half_precision(name: str, bias: bool) -> None:
    layer = build(name, bias=bias)
    exact = copy.deepcopy(layer).double()(tokens().double(), real_tokens())
    for dtype in (torch.float16, torch.bfloat16):
        output = copy.deepcopy(layer).to(dtype)(tokens().to(dtype), real_tokens())
        assert output.dtype == dtype
        tolerance = 8 * torch.finfo(dtype).eps * exact.abs().max().item()
        assert_close(output.double(), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@each_masking
def test_softmax_equals_torch_with_its_state_dict(bias: bool, masked: bool) -> None:
    torch.manual_seed(0)
    original = nn.MultiheadAttention(M, HEADS, bias=bias, batch_first=True).double()
    with_random_biases(original)
    layer = MultiHeadAttention(M, HEADS, method="softmax", bias=bias).double()
    layer.load_state_dict(original.state_dict(), strict=True)
    x = tokens().double()
    mask = real_tokens() if masked else None
    padding = None if mask is None else mask.logical_not()  # torch: True = padding
    expected, _ = original(x, x, x, key_padding_mask=padding, need_weights=False)
    real = slice(None) if mask is None else mask
    assert_close(layer(x, mask)[real], expected[real], rtol=1e-12, atol=1e-12)


def test_initial_weights_are_distributed_as_in_torch() -> None:
    torch.manual_seed(0)
    ours, theirs = MultiHeadAttention(256, 4), nn.MultiheadAttention(256, 4)
    for name, parameter in theirs.named_parameters():
        own = dict(ours.named_parameters())[name]
        assert own.std().item() == pytest.approx(parameter.std().item(), rel=0.02)
        assert own.abs().max().item() == pytest.approx(parameter.abs().max().item(), rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((12, 5), {}, "12 is not a multiple of 5; heads that do: 1, 2, 3, 4, 6, 12$"),
        ((0, 1), {}, "at least 1, got d_model=0 and heads=1"),
        ((12, 0), {}, "at least 1, got d_model=12 and heads=0"),
        ((12, 3), {"method": "lineformer"}, "unknown method: 'lineformer'.*mean 'linformer'"),
        ((12, 3), {"method": "elu", "normalise": True}, "option of method 'elu'.*mean 'normalize'"),
        ((12, 3), {"method": "linformer", "rank": 0}, "linformer.rank must be at least 1, got 0"),
    ],
    ids=["heads do not divide", "no width", "no heads", "method", "option", "option's range"],
)
def test_wrong_arguments_are_refused(
    arguments: tuple[int, int], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(MethodError, match=message):
        MultiHeadAttention(*arguments, **options)


@pytest.mark.parametrize("shape", [(N, M), (BATCH, N, M + 1), (BATCH, 2, N, M)], ids=str)
@pytest.mark.parametrize("form", ["eager", "scripted"])
def test_wrong_input_shape_is_named(form: str, shape: tuple[int, ...]) -> None:
    layer: Any = build("elu")
    error: type[Exception] = ValueError
    if form == "scripted":
        layer, error = torch.jit.script(layer), torch.jit.Error
    got = ", ".join(map(str, shape))
    with pytest.raises(error, match=rf"\[batch, sequence, 12\], got .*\[{got}\]"):
        layer(torch.zeros(shape))


@each_method
@each_masking
def test_scripted_equals_eager(name: str, masked: bool) -> None:
    layer = build(name).double()
    scripted = torch.jit.script(layer)
    for batch, n in [(3, 7), (1, 1), (2, 16)]:
        x = tokens(batch, n).double()
        mask = real_tokens(batch, n) if masked else None
        assert_close(scripted(x, mask), layer(x, mask), rtol=1e-12, atol=1e-12)


# A scan over chunks takes torch.export five seconds.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if record.capabilities.causal else ())
        for name, record in METHODS.items()
    ],
)
@each_masking
def test_exported_program_takes_any_batch_and_length(name: str, masked: bool) -> None:
    layer = build(name).double().eval()
    longest = None if METHODS[name].capabilities.any_length else N_MAX
    axes = {0: Dim("batch", min=1), 1: Dim("sequence", min=1, max=longest)}
    causal = METHODS[name].capabilities.causal
    with torch.no_grad(), sizes_may_be_one() if causal else contextlib.nullcontext():
        program = torch.export.export(
            layer,
            (tokens().double(), real_tokens() if masked else None),
            dynamic_shapes=(axes, axes if masked else None),
        ).module()
    for batch, n in [(1, 1), (1, 7), (3, 1), (2, 16)]:
        x = tokens(batch, n).double()
        mask = real_tokens(batch, n) if masked else None
        assert_close(program(x, mask), layer(x, mask), rtol=1e-12, atol=1e-12)


@each_method
def test_training_lowers_the_loss(name: str) -> None:
    layer = build(name)
    x, target, mask = tokens(), tokens().flip(1), real_tokens()
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        loss = (layer(x, mask) - target)[mask].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(parameter.grad is not None for parameter in layer.parameters())
