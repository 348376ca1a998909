"""Ours against public implementations with the same weights (extra ``references``)."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from linattn import METHODS, MultiHeadAttention
from timm_layers import lite_mla

pytestmark = pytest.mark.references

BATCH, HEADS, N, WIDTH = 2, 4, 31, 8
MODEL = HEADS * WIDTH


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def ours(name: str, *inputs: Tensor | None, **options: object) -> Tensor:
    record = METHODS[name]
    output: Tensor = record.module(record.configure(options))(*inputs)
    return output


@pytest.mark.parametrize("n", [1, 9, N])
def test_linformer_layer_equals_linformer_package(n: int) -> None:
    from linformer import LinformerSelfAttention

    torch.manual_seed(0)
    rank = 6
    theirs = LinformerSelfAttention(MODEL, N, k=rank, heads=HEADS).double()
    nn.init.normal_(theirs.to_out.bias)
    layer = MultiHeadAttention(MODEL, HEADS, method="linformer", rank=rank, max_length=N).double()
    layer.load_state_dict(
        {
            # They project without bias, then compress; their projections are N x R.
            "in_proj_weight": torch.cat(
                [x.weight for x in (theirs.to_q, theirs.to_k, theirs.to_v)]
            ),
            "in_proj_bias": torch.zeros(3 * MODEL),
            "attention.key_projection": theirs.proj_k.T,
            "attention.value_projection": theirs.proj_v.T,
            "out_proj.weight": theirs.to_out.weight,
            "out_proj.bias": theirs.to_out.bias,
        }
    )
    x = normal(BATCH, n, MODEL)
    assert_close(layer(x), theirs(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "masked"])
def test_efficient_equals_linear_attention_transformer(masked: bool) -> None:
    from linear_attention_transformer.linear_attention_transformer import linear_attn

    q, k, v = normal(3, BATCH, HEADS, N, WIDTH)
    mask = torch.arange(N) < torch.tensor([[N], [9]]) if masked else None
    # They also divide by the root of the width, after the softmax of the query; and they write
    # the mask into k and v.
    theirs = linear_attn(q, k.clone(), v.clone(), mask) * WIDTH**0.5
    assert_close(ours("efficient", q, k, v, mask), theirs, rtol=1e-10, atol=1e-12)


def test_relu_equals_lite_mla_of_timm() -> None:
    torch.manual_seed(0)
    height, width = 5, 7
    # Without its multi-scale branches and its norm, which are not attention.
    theirs = lite_mla()(MODEL, MODEL, dim=WIDTH, scales=(), norm_layer=None)
    x = normal(BATCH, MODEL, height, width, dtype=torch.float32)
    per_head = theirs.qkv(x).reshape(BATCH, HEADS, 3 * WIDTH, height * width)
    q, k, v = per_head.transpose(-1, -2).chunk(3, dim=-1)
    attended = ours("relu", q, k, v, eps=theirs.eps)
    output = theirs.proj(attended.transpose(-1, -2).reshape(BATCH, MODEL, height, width))
    # They compute in float32 whatever the dtype.
    assert_close(output, theirs(x), rtol=1e-5, atol=1e-6)
