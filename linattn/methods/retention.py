"""Retention: causal linear attention that forgets at a fixed rate, another for each head.

    S_t = gamma_h S_{t-1} + k_t v_t^T        out_t = norm(S_t^T q_t / sqrt(D))
    gamma_h = 1 - 2^(-5 - h)                 norm(y) = y / sqrt(mean(y^2) + eps)

Source: Sun, Dong, Huang, Ma, Xia, Xue, Wang, Wei, "Retentive Network", 2023, arXiv 2307.08621,
sections 2.1 and 2.2. The norm is the paper's GroupNorm without weights; it takes one row of one
head. Rotation of queries and keys (xPos) and the gate are the layer's, not of this method.
Masks: a masked token is not written and does not let the state fade, so that padding on either
side changes nothing.
Cost: O(N D E) time, in chunks (linattn.recurrent); no tensor of N x D x E.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.causal import ONE_HEAD, check_same_tokens, head_major, token_major
from linattn.contract import Capabilities, Method, MethodError
from linattn.numerics import check_heads, column_mask, widen, zero_masked
from linattn.recurrent import recurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """``normalize``: divide each row by its root mean square. ``eps``: added to the mean."""

    normalize: bool = True
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 < self.eps < math.inf:
            raise MethodError(f"retention.eps must be above 0 and finite, got {self.eps!r}")


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: RetentionConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights gamma^(i - j); run it in float64."""
    heads = query.shape[1] if query.dim() == 4 else 1
    gamma = 1 - 2.0 ** (-5 - torch.arange(heads, dtype=query.dtype))
    kept = torch.ones(query.shape[:-1], dtype=query.dtype)
    if mask is not None:
        kept = (mask.unsqueeze(1) if query.dim() == 4 else mask).to(query.dtype).expand_as(kept)
    # Masked tokens do not count as time.
    time = kept.cumsum(-1)
    passed = (time.unsqueeze(-1) - time.unsqueeze(-2)).clamp(min=0)
    base = gamma.reshape(-1, 1, 1) if query.dim() == 4 else gamma
    weights = (torch.matmul(query, key.transpose(-1, -2)) * base**passed).tril()
    output = torch.matmul(weights * kept.unsqueeze(-2), value) / math.sqrt(query.shape[-1])
    if config.normalize:
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
    return output


class Retention(nn.Module):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.normalize: bool = config.normalize
        self.eps = float(config.eps)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes."""
        output, _ = self.advance(query, key, value, mask, None, False)
        return output

    def advance(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Optional[Tensor],
        state: Optional[Tensor],
        one_token: bool,
    ) -> tuple[Tensor, Tensor]:
        """Attend from a state ``[B, H, D, E]``; see linattn.causal.CausalAttention."""
        check_heads(query, key, value)
        check_same_tokens(query, key)
        dtype = query.dtype
        query, key, value = widen(query), widen(key), widen(value)
        column = column_mask(mask, key) if mask is not None else None
        key = token_major(zero_masked(key, column))
        place = key.new_ones([key.size(2)]).cumsum(0)  # h + 1
        rate = torch.log1p(-torch.exp2(-4.0 - place))
        decay = zero_masked(torch.ones_like(query[..., :1]), column)
        output, last = recurrence(
            token_major(query),
            key,
            token_major(zero_masked(value, column)),
            token_major(decay).squeeze(-1) * rate,
            None,
            state,
            1.0 / math.sqrt(query.size(-1)),
            one_token,
        )
        output = head_major(output).reshape(value.shape)
        if self.normalize:
            output = output * torch.rsqrt(output.square().mean(dim=-1, keepdim=True) + self.eps)
        return output.to(dtype), last

    def state_shape(self, width: int) -> tuple[int, int]:
        """Of one head, for queries, keys and values of ``width``."""
        return width, width


METHOD = Method(
    name="retention",
    title="Retention, a fixed decay for each head",
    formula="S_t = gamma_h S_{t-1} + k_t v_t^T, out_t = norm(S_t^T q_t / sqrt(D))",
    source="Sun et al. 2023, arXiv 2307.08621",
    when=(
        "Where forgetting at a fixed rate is enough: nothing is learned for it, and its step is "
        "among the fastest here. Take `gla` or `gated_delta` where the model shall learn what to "
        "forget."
    ),
    config=RetentionConfig,
    module=Retention,
    oracle=oracle,
    capabilities=Capabilities(
        cost="linear",
        cross_attention=False,
        permutation_equivariant=False,
        causal=True,
        recurrent=True,
        divides_rows=True,
    ),
    limits=ONE_HEAD,
)
