"""The converter of one package on a layer written as the package writes it, which is not here."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linattn
from linattn.adoption.linformer import LinformerStandIn


class LinformerSelfAttention(nn.Module):
    def __init__(self, dim: int, seq_len: int, k: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.seq_len, self.k, self.heads, self.dim_head = seq_len, k, heads, dim // heads
        self.share_kv = False
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.proj_k = nn.Parameter(torch.randn(seq_len, k) / seq_len**0.5)
        self.proj_v = nn.Parameter(torch.randn(seq_len, k) / seq_len**0.5)
        self.dropout = nn.Dropout(dropout)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        length = source.shape[1]
        key = torch.einsum("bnd,nk->bkd", self.to_k(source), self.proj_k[:length])
        value = torch.einsum("bnd,nk->bkd", self.to_v(source), self.proj_v[:length])
        query, key, value = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (self.to_q(x), key, value)
        )
        scores = query @ key.transpose(-1, -2) * self.dim_head**-0.5
        output = self.dropout(scores.softmax(dim=-1)) @ value
        joined: Tensor = self.to_out(output.transpose(1, 2).flatten(2))
        return joined


LinformerSelfAttention.__module__ = "linformer.linformer"


def drawn(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    made: dict[str, Any] = {"dim": 16, "seq_len": 20, "k": 4, "heads": 2}
    return LinformerSelfAttention(**(made | options))


def test_the_report_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(drawn(), nn.LayerNorm(16))
    print(linattn.adopt(model))
    assert isinstance(model[0], LinformerStandIn)
    assert "roundings of the original" in capsys.readouterr().out


def test_it_exports_at_every_length_that_the_original_takes() -> None:
    model = linattn.adopt(drawn().eval()).model
    length = torch.export.Dim("length", min=1, max=20)
    program = torch.export.export(model, (torch.randn(2, 7, 16),), dynamic_shapes=({1: length},))
    for n in (1, 19, 20):
        x = torch.randn(2, n, 16)
        torch.testing.assert_close(program.module()(x), model(x))


def test_dropout_within_the_attention_is_refused_in_training_only() -> None:
    report = linattn.adopt(drawn(dropout=0.1))
    assert report.kept[0].reason.startswith("dropout=0.1 acts on the attention in training mode")
    assert linattn.adopt(drawn(dropout=0.1).eval()).adopted


def test_a_layer_in_the_place_of_a_projection_is_refused() -> None:
    class Quantised(nn.Linear):
        pass

    layer: Any = drawn().eval()
    layer.to_k = Quantised(16, 16, bias=False)
    reason = linattn.adopt(layer).kept[0].reason
    assert reason == "to_k is a Quantised, not a plain nn.Linear; merge or dequantise it"
