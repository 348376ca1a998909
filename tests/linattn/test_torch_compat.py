"""Ours where PyTorch calls its own attention."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
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
    small,
    tokens,
    with_random_biases,
)
from linattn import TorchSelfAttention


def encoder_layer(**options: Any) -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        M, 2, dim_feedforward=24, dropout=0.0, batch_first=True, dtype=torch.float64, **options
    )
    with_random_biases(layer)
    return layer.eval()


@each_masking
@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
def test_encoder_layer_of_torch_with_ours_in_place_of_self_attn(
    masked: bool, norm_first: bool, grad: bool
) -> None:
    theirs = encoder_layer(norm_first=norm_first)
    ours = copy.deepcopy(theirs)
    ours.self_attn = TorchSelfAttention.from_torch(theirs.self_attn, method="softmax")
    x = tokens().double()
    mask = real_tokens() if masked else torch.ones(BATCH, N, dtype=torch.bool)
    padding = mask.logical_not() if masked else None
    with torch.set_grad_enabled(grad):
        output = ours(x, src_key_padding_mask=padding)
        expected = theirs(x, src_key_padding_mask=padding)
    assert_close(output[mask], expected[mask], rtol=1e-10, atol=1e-10)


@each_method
@each_masking
def test_encoder_layer_of_torch_really_calls_the_method(name: str, masked: bool) -> None:
    # In eval and without gradients torch has a fused kernel, which knows nothing of our method.
    layer = encoder_layer()
    attention = TorchSelfAttention.from_torch(layer.self_attn, method=name, **small(name))
    layer.self_attn = attention
    x = tokens().double()
    mask = real_tokens() if masked else None
    with torch.no_grad():
        output = layer(x, src_key_padding_mask=None if mask is None else mask.logical_not())
        attended = layer.norm1(x + attention.layer(x, mask))
        expected = layer.norm2(attended + layer.linear2(torch.relu(layer.linear1(attended))))
    assert_close(output, expected)


def test_encoder_of_torch_with_ours_in_every_layer() -> None:
    theirs = nn.TransformerEncoder(encoder_layer(), 2, enable_nested_tensor=False).eval()
    ours: Any = copy.deepcopy(theirs)
    for layer in ours.layers:
        layer.self_attn = TorchSelfAttention.from_torch(layer.self_attn, method="softmax")
    x, mask = tokens().double(), torch.arange(N) < torch.tensor([[7], [3], [1]])
    with torch.no_grad():
        output = ours(x, src_key_padding_mask=mask.logical_not())
        expected = theirs(x, src_key_padding_mask=mask.logical_not())
    assert_close(output[mask], expected[mask], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_from_torch_keeps_weights_dtype_and_mode(
    bias: bool, dtype: torch.dtype, training: bool
) -> None:
    original = nn.MultiheadAttention(M, HEADS, bias=bias, batch_first=True, dtype=dtype)
    original.train(training)
    converted = TorchSelfAttention.from_torch(original, method="linformer", max_length=N_MAX)
    state = converted.layer.state_dict()
    for name, x in original.state_dict().items():
        assert torch.equal(state[name], x)
    assert {x.dtype for x in state.values()} == {dtype}
    assert converted.layer.training == training
    assert repr(converted.layer).startswith("MultiHeadAttention(12, 3, method='linformer'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_first": False}, "only batch_first=True is supported"),
        ({"kdim": 5}, "kdim, vdim, add_bias_kv and add_zero_attn are not supported"),
        ({"vdim": 5}, "kdim, vdim, add_bias_kv and add_zero_attn are not supported"),
        ({"add_bias_kv": True}, "kdim, vdim, add_bias_kv and add_zero_attn are not supported"),
        ({"add_zero_attn": True}, "kdim, vdim, add_bias_kv and add_zero_attn are not supported"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_from_torch_refuses_what_ours_lacks(options: dict[str, Any], message: str) -> None:
    original = nn.MultiheadAttention(M, HEADS, **({"batch_first": True} | options))
    with pytest.raises(ValueError, match=message):
        TorchSelfAttention.from_torch(original, method="elu")


def test_torch_self_attention_takes_both_kinds_of_padding_mask() -> None:
    attention = TorchSelfAttention(build("elu"))
    x, mask = tokens(), real_tokens()
    additive = torch.zeros(BATCH, N).masked_fill(mask.logical_not(), -math.inf)
    expected = attention.layer(x, mask)
    for padding in (mask.logical_not(), additive):
        output, weights = attention(x, x, x, key_padding_mask=padding)
        assert torch.equal(output, expected)
        assert weights is None


def test_torch_self_attention_can_be_scripted() -> None:
    attention = TorchSelfAttention(build("elu"))
    x, padding = tokens(), real_tokens().logical_not()
    output, _ = torch.jit.script(attention)(x, x, x, padding)
    assert_close(output, attention(x, x, x, padding)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"need_weights": True}, "need_weights must be False"),
        ({"attn_mask": torch.zeros(N, N)}, "attn_mask must be None"),
        ({"is_causal": True}, "is_causal False"),
        (dict.fromkeys(["key", "value"], torch.zeros(BATCH, N + 1, M)), "must be one tensor"),
        ({"value": torch.zeros(BATCH, N + 1, M)}, "must be one tensor"),
    ],
    ids=["weights", "attention mask", "causal", "cross-attention", "other value"],
)
def test_torch_self_attention_refuses_what_it_cannot_do(
    options: dict[str, Any], message: str
) -> None:
    x = tokens()
    with pytest.raises(ValueError, match=message):
        TorchSelfAttention(build("elu"))(**({"query": x, "key": x, "value": x} | options))
