"""First-order Taylor attention ("linear attention mechanism").

    out_i = (sum_j v_j + q'_i sum_j k'_j v_j^T) / (n + q'_i . sum_j k'_j)      x' = x / ||x||_2

with n the number of real tokens.

Source: Li, Su, Duan, Zheng, "Linear Attention Mechanism: An Efficient Attention for Semantic
Segmentation", 2020, arXiv 2007.14902, equation 11. No 1/sqrt(D): the rows are unit vectors.
Cost: O(N D E) time, O(D E) memory beyond inputs and outputs.
Numerics: norms are clamped from below, so a zero row of Q or K has direction 0 and weight 1; the
published code gives NaN there. The denominator is a sum of 1 + cos >= 0; it is clamped at
``eps``, since it vanishes when every key points away from the query. There the quotient of two
rounding errors is all that single precision has to offer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, Method, MethodError
from linattn.kernel import kept_weights
from linattn.numerics import (
    check_heads,
    column_mask,
    token_sum,
    unit_rows,
    widen,
    zero_masked,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaylorConfig:
    """``norm_eps``: lower bound of the L2 norms. ``eps``: lower bound of the denominator."""

    norm_eps: float = 1e-12
    eps: float = 1e-6

    method: ClassVar[str] = "taylor"

    def __post_init__(self) -> None:
        for name in ("norm_eps", "eps"):
            eps = getattr(self, name)
            if not 0 < eps < math.inf:
                raise MethodError(f"{self.method}.{name} must be above 0 and finite, got {eps!r}")


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: TaylorConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights 1 + cos; run it in float64."""
    return taylor_oracle(query, key, value, mask, config, causal=False)


def taylor_oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: TaylorConfig,
    *,
    causal: bool,
) -> Tensor:
    """The definition with all keys, or with those up to each query."""
    q_unit = query / torch.linalg.vector_norm(query, dim=-1, keepdim=True).clamp(
        min=config.norm_eps
    )
    k_unit = key / torch.linalg.vector_norm(key, dim=-1, keepdim=True).clamp(min=config.norm_eps)
    cosines = torch.matmul(q_unit, k_unit.transpose(-1, -2))
    weights = kept_weights(1 + cosines, mask, causal=causal)
    total = weights.sum(dim=-1, keepdim=True)
    return torch.matmul(weights, value) / total.clamp(min=config.eps)


class TaylorAttention(nn.Module):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.norm_eps = float(config.norm_eps)
        self.eps = float(config.eps)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes."""
        check_heads(query, key, value)
        q_unit = unit_rows(widen(query), self.norm_eps)
        k_unit = unit_rows(widen(key), self.norm_eps)
        value = widen(value)
        column: Optional[Tensor] = None
        if mask is not None:
            column = column_mask(mask, key)
            k_unit = zero_masked(k_unit, column)
            value = zero_masked(value, column)
        context = torch.matmul(k_unit.transpose(-1, -2), value)
        numerator = token_sum(value) + torch.matmul(q_unit, context)
        denominator = torch.matmul(q_unit, token_sum(k_unit).transpose(-1, -2))
        if column is None:
            denominator = denominator + key.size(-2)
        else:
            denominator = denominator + torch.sum(column.to(value.dtype), dim=-2, keepdim=True)
        return (numerator / torch.clamp(denominator, min=self.eps)).to(query.dtype)


METHOD = Method(
    name="taylor",
    title="First-order Taylor attention",
    formula="(sum V + Q' (K'^T V)) / (n + Q' sum K'), rows of Q', K' of unit length",
    source="Li et al. 2020, arXiv 2007.14902",
    when=(
        "Where only the direction of queries and keys shall count: rows are brought to unit "
        "length, and no weight exceeds twice that of an unrelated token. It cannot single out one "
        "token."
    ),
    config=TaylorConfig,
    module=TaylorAttention,
    oracle=oracle,
    capabilities=Capabilities(cost="linear"),
)
