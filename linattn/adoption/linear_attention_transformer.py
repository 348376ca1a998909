"""``linear-attention-transformer``: https://pypi.org/project/linear-attention-transformer/."""

from collections.abc import Sequence
from typing import Any, Optional

from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial, require
from linattn.adoption.heads import join_heads, rotated, split_heads
from linattn.adoption.trials import token_trials, tokens
from linattn.adoption.weights import plain
from linattn.methods.efficient import EfficientAttention, EfficientConfig


class EfficientStandIn(nn.Module):
    """``SelfAttention`` of both kinds; theirs divides by the root of the width, ours does not."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.heads = int(original.heads)
        self.receives_context = bool(original.receives_context)
        self.scale = float(original.d_heads) ** -0.5
        names = ("to_q", "to_k", "to_v", "to_out")
        self.to_q, self.to_k, self.to_v, self.to_out = plain(original, *names)
        self.dropout = original.dropout
        self.attention = EfficientAttention(EfficientConfig())

    def forward(
        self,
        x: Tensor,
        input_mask: Optional[Tensor] = None,
        context: Optional[Tensor] = None,
        context_mask: Optional[Tensor] = None,
        pos_emb: Optional[Tensor] = None,
    ) -> Tensor:
        """``[B, N, M]`` of ``x [B, N, M]``; masks ``[B, N]`` are True for real tokens."""
        source, mask = x, input_mask
        if self.receives_context:
            if context is None:
                raise ValueError("context must be given to a layer built with receives_context")
            source, mask = context, context_mask
        query = split_heads(self.to_q(x), self.heads)
        key = split_heads(self.to_k(source), self.heads)
        value = split_heads(self.to_v(source), self.heads)
        if pos_emb is not None and not self.receives_context:
            query, key = rotated(query, pos_emb), rotated(key, pos_emb)
        output = self.attention(query, key, value, mask) * self.scale
        joined: Tensor = self.dropout(self.to_out(join_heads(output)))
        return joined


def convert(original: Any) -> nn.Module:
    """The stand-in, or Unsupported."""
    # The layer keeps a function and not the flag: causal, it is a partial of another one.
    function = getattr(original.global_attn_fn, "__name__", "partial")
    require("causal", function != "linear_attn", False)
    require("n_local_attn_heads", original.local_attn_heads, 0)
    return EfficientStandIn(original)


def trials(original: Any) -> Sequence[Trial]:
    """With a mask, and with rotated positions or a context."""
    width = original.to_q.in_features
    if original.receives_context:
        return token_trials(
            width,
            hidden="x",
            more=lambda n: {"context": tokens(n + 3, width)},
        )
    found = token_trials(width, hidden="x", mask="input_mask")
    channels = original.d_heads - original.d_heads % 2
    if channels == original.d_heads:
        found += token_trials(
            width,
            hidden="x",
            mask="input_mask",
            more=lambda n: {"pos_emb": tokens(n, channels, batch=1)},
            shared=("pos_emb",),
        )
    return found


PEERS = (
    Peer(
        package="linear-attention-transformer",
        layer="linear_attention_transformer.linear_attention_transformer.SelfAttention",
        versions="0.19.1",
        method="efficient",
        convert=convert,
        trials=trials,
    ),
)
