"""``linformer``: https://pypi.org/project/linformer/."""

from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Peer, require_no_dropout
from linattn.adoption.heads import join_heads, split_heads
from linattn.adoption.trials import token_trials
from linattn.adoption.weights import load, plain
from linattn.methods.linformer import LinformerAttention, LinformerConfig


class LinformerStandIn(nn.Module):
    """``LinformerSelfAttention``: its projections around our method.

    Keys and values may have one head for all queries, and values may be the keys.
    """

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.heads = int(original.heads)
        self.width = int(original.dim_head)
        self.share_kv = bool(original.share_kv)
        self.to_q, self.to_k, self.to_out = plain(original, "to_q", "to_k", "to_out")
        self.to_v = self.to_k if self.share_kv else plain(original, "to_v")[0]
        config = LinformerConfig(rank=original.k, max_length=original.seq_len)
        value = original.proj_k if self.share_kv else original.proj_v
        attention = LinformerAttention(config)
        load(attention, {"key_projection": original.proj_k.T, "value_projection": value.T})
        if self.share_kv:
            attention.value_projection = attention.key_projection
        self.attention = attention

    def forward(self, x: Tensor, context: Optional[Tensor] = None) -> Tensor:
        """``[B, N, M]`` of hidden states ``x [B, N, M]`` and keys of ``context [B, S, M]``."""
        source = x if context is None else context
        query = split_heads(self.to_q(x), self.heads)
        key = self._every_head(self.to_k(source))
        value = key if self.share_kv else self._every_head(self.to_v(source))
        output: Tensor = self.to_out(join_heads(self.attention(query, key, value)))
        return output

    def _every_head(self, x: Tensor) -> Tensor:
        x = split_heads(x, x.size(-1) // self.width)
        return torch.repeat_interleave(x, self.heads // x.size(1), dim=1)


def convert(original: Any) -> nn.Module:
    """The stand-in, or Unsupported."""
    require_no_dropout("dropout", original.dropout.p, original)
    return LinformerStandIn(original)


PEERS = (
    Peer(
        package="linformer",
        layer="linformer.linformer.LinformerSelfAttention",
        versions="0.2.3",
        method="linformer",
        convert=convert,
        trials=lambda original: token_trials(
            original.to_q.in_features, hidden="x", longest=original.seq_len
        ),
    ),
)
