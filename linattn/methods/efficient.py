"""Efficient attention: one softmax over the features of a query, one over the tokens of the keys.

    out_i = rho_q(q_i) (rho_k(K)^T V)      rho_q: softmax over D      rho_k: softmax over N

Source: Shen, Zhang, Zhao, Yi, Li, "Efficient Attention: Attention with Linear Complexities",
2018, arXiv 1812.01243, section 3 (softmax normalisation). No 1/sqrt(D).
Cost: O(N D E) time, O(D E) memory beyond inputs and outputs.
Numerics: both softmaxes subtract their maximum. The softmax over tokens couples every key with
every other, so masked tokens leave it before it is taken; they also leave V.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, Method
from linattn.numerics import check_heads, column_mask, lower_masked, widen, zero_masked


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficientConfig:
    """No options."""


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: EfficientConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights; run it in float64."""
    rho_query = torch.exp(query - query.amax(dim=-1, keepdim=True))
    rho_query = rho_query / rho_query.sum(dim=-1, keepdim=True)
    kept = torch.ones(key.shape[:-1], dtype=torch.bool)
    if mask is not None:
        kept = (mask.unsqueeze(1) if key.dim() == 4 else mask).expand(key.shape[:-1])
    rho_key = torch.where(kept.unsqueeze(-1), torch.exp(key - key.amax(dim=-2, keepdim=True)), 0.0)
    total = rho_key.sum(dim=-2, keepdim=True)
    rho_key = torch.where(total > 0, rho_key / total, 0.0)
    return torch.matmul(torch.matmul(rho_query, rho_key.transpose(-1, -2)), value)


class EfficientAttention(nn.Module):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes."""
        check_heads(query, key, value)
        key = widen(key)
        value = widen(value)
        if mask is not None:
            column = column_mask(mask, key)
            key = lower_masked(key, column)
            value = zero_masked(value, column)
        rho_query = torch.softmax(widen(query), dim=-1)
        # Over the last axis of the transposed keys: ONNX Runtime turns any other axis to the end
        # and back, and the product wants them transposed anyway.
        rho_key = torch.softmax(key.transpose(-1, -2), dim=-1)
        context = torch.matmul(rho_key, value)
        return torch.matmul(rho_query, context).to(query.dtype)


METHOD = Method(
    name="efficient",
    title="Efficient attention",
    formula="softmax_features(Q) (softmax_tokens(K)^T V)",
    source="Shen et al. 2018, arXiv 1812.01243",
    when=(
        "For images and sets, where all tokens are there at once: of the linear methods here it "
        "adds the least to its matrix products. Each key channel becomes one summary of the "
        "sequence, and a query mixes these; it cannot point to one token."
    ),
    config=EfficientConfig,
    module=EfficientAttention,
    oracle=oracle,
    capabilities=Capabilities(cost="linear"),
)
