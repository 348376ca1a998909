"""Softmax attention: the quadratic baseline.

    out_i = sum_j softmax_j(q_i . k_j / sqrt(D)) v_j

Source: Vaswani et al., "Attention Is All You Need", 2017, arXiv 1706.03762, section 3.2.1.
Cost: O(N L (D + E)) time, O(N L) memory: the N x L scores are held whole. Where the longest
sequence of a build makes those of all heads more than 1 GiB, the heads take turns.
Numerics: softmax subtracts the row maximum. Masked scores become the lowest finite number, not
-inf, and masked values become zero, so that a fully masked row is 0 and never NaN.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, Method, MethodError
from linattn.numerics import check_heads, column_mask, lower_masked, widen, zero_masked


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxConfig:
    """``scale``: factor of the scores; None means 1 / sqrt(D)."""

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not 0 < self.scale < math.inf:
            raise MethodError(f"softmax.scale must be above 0 and finite, got {self.scale!r}")


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: SoftmaxConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, by exponentials and their sums; run it in float64."""
    scale = 1 / math.sqrt(query.shape[-1]) if config.scale is None else config.scale
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    if mask is not None:
        row = mask.unsqueeze(-2)
        row = row.unsqueeze(1) if weights.dim() == 4 else row
        scores = torch.where(row, scores, -math.inf)
        weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True).clamp(min=-1e300))
    total = weights.sum(dim=-1, keepdim=True)
    return torch.matmul(torch.where(total > 0, weights / total, 0.0), value)


class SoftmaxAttention(nn.Module):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.scale = 0.0 if config.scale is None else float(config.scale)

    def weights(self, query: Tensor, key: Tensor, column: Optional[Tensor]) -> Tensor:
        """The attention weights ``[.., L, N]``; each row sums to one."""
        scale = self.scale if self.scale > 0.0 else 1.0 / math.sqrt(query.size(-1))
        scores = torch.matmul(query * scale, key.transpose(-1, -2))
        if column is not None:
            scores = lower_masked(scores, column.transpose(-1, -2))
        return torch.softmax(scores, dim=-1)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes."""
        check_heads(query, key, value)
        column = column_mask(mask, key) if mask is not None else None
        weights = self.weights(widen(query), widen(key), column)
        return torch.matmul(weights, zero_masked(widen(value), column)).to(query.dtype)


METHOD = Method(
    name="softmax",
    title="Softmax attention (quadratic baseline)",
    formula="softmax(Q K^T / sqrt(D)) V",
    source="Vaswani et al. 2017, arXiv 1706.03762",
    when=(
        "As the baseline that the others are compared with, and where sequences stay below a few "
        "hundred tokens: there it is as fast. Only it computes what models trained with softmax "
        "attention learned."
    ),
    config=SoftmaxConfig,
    module=SoftmaxAttention,
    oracle=oracle,
    capabilities=Capabilities(cost="quadratic"),
)
