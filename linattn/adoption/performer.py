"""``performer-pytorch``: https://pypi.org/project/performer-pytorch/.

Its layers mask the values and not the keys, so that padding takes part in the normaliser: they are
kept unless strict is off. The attention inside them is replaced all the same; it has no mask. In
training, the package draws the projection anew now and then; ours keeps the one that it finds.
"""

from collections.abc import Sequence
from typing import Any, Optional

from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial, Unsupported, require
from linattn.adoption.heads import join_heads, rotated, split_heads
from linattn.adoption.trials import token_trials, tokens
from linattn.adoption.weights import plain
from linattn.methods.efficient import EfficientAttention, EfficientConfig
from linattn.methods.performer import PerformerAttention, PerformerConfig

SOFTMAX_EPS, RELU_EPS = 1e-4, 1e-3
"""Constants of the package, which its layers do not keep."""


class FastAttentionStandIn(nn.Module):
    """``FastAttention``: of query, key and value ``[B, H, N, D]``."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """``[B, H, N, D]``."""
        output: Tensor = self.attention(q, k, v)
        return output


class PerformerStandIn(nn.Module):
    """``SelfAttention`` and ``CrossAttention``, with a mask that keeps padding out."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.heads = int(original.heads)
        names = ("to_q", "to_k", "to_v", "to_out")
        self.to_q, self.to_k, self.to_v, self.to_out = plain(original, *names)
        self.dropout = original.dropout
        self.attention = fast_attention(original.fast_attention)

    def forward(
        self,
        x: Tensor,
        pos_emb: Optional[Tensor] = None,
        context: Optional[Tensor] = None,
        mask: Optional[Tensor] = None,
        context_mask: Optional[Tensor] = None,
    ) -> Tensor:
        """``[B, N, M]`` of ``x [B, N, M]``; masks ``[B, N]`` are True for real tokens."""
        source = x if context is None else context
        kept = context_mask
        if kept is None and context is None:
            kept = mask
        query = split_heads(self.to_q(x), self.heads)
        key = split_heads(self.to_k(source), self.heads)
        value = split_heads(self.to_v(source), self.heads)
        if pos_emb is not None and context is None:
            query, key = rotated(query, pos_emb), rotated(key, pos_emb)
        joined = join_heads(self.attention(query, key, value, kept))
        output: Tensor = self.dropout(self.to_out(joined))
        return output


def fast_attention(original: Any) -> nn.Module:
    """Our method with the projection of a ``FastAttention``."""
    require("causal", original.causal, False)
    if original.no_projection:
        # A softmax over channels and one over tokens; the normaliser is a sum of ones.
        return EfficientAttention(EfficientConfig())
    if original.generalized_attention and type(original.kernel_fn) is not nn.ReLU:
        raise Unsupported(
            f"kernel_fn={type(original.kernel_fn).__name__} is not supported; supported: ReLU"
        )
    projection = original.projection_matrix
    attention = PerformerAttention(
        PerformerConfig(
            kernel="relu" if original.generalized_attention else "softmax",
            features=projection.shape[0],
            eps=RELU_EPS if original.generalized_attention else SOFTMAX_EPS,
            head_dim=projection.shape[1],
        )
    )
    attention.projection = projection.detach().clone()
    return attention


def convert(original: Any) -> nn.Module:
    """The stand-in of a layer, or Unsupported."""
    require("local_heads", original.heads - original.global_heads, 0)
    return PerformerStandIn(original)


def trials(original: Any) -> Sequence[Trial]:
    """With a mask, and with rotated positions; cross-attention with a context."""
    width = original.to_q.in_features
    if type(original).__name__ == "CrossAttention":
        return token_trials(width, hidden="x", more=lambda n: {"context": tokens(n + 3, width)})
    found = token_trials(width, hidden="x", mask="mask")
    channels = original.to_q.out_features // original.heads
    if channels % 2 == 0:
        found += token_trials(
            width,
            hidden="x",
            mask="mask",
            more=lambda n: {"pos_emb": tokens(n, channels, batch=1)},
            shared=("pos_emb",),
        )
    return found


def _head_trials(original: Any) -> Sequence[Trial]:
    """Two heads of query, key and value."""
    found = []
    for trial in token_trials(2 * original.dim_heads, hidden="q"):
        query = split_heads(trial.inputs["q"], 2)
        inputs = {"q": query, "k": query.flip(1), "v": query.flip(3)}
        found.append(Trial(name=trial.name, inputs=inputs, batched=("q", "k", "v")))
    return found


def _peer(name: str, *, whole: bool) -> Peer:
    return Peer(
        package="performer-pytorch",
        layer=f"performer_pytorch.performer_pytorch.{name}",
        versions="1.1.4",
        method="performer",
        convert=convert if whole else lambda x: FastAttentionStandIn(fast_attention(x)),
        trials=trials if whole else _head_trials,
    )


PEERS = (
    _peer("SelfAttention", whole=True),
    _peer("CrossAttention", whole=True),
    _peer("FastAttention", whole=False),
)
