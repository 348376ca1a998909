"""Causal first-order Taylor attention.

    out_i = sum_j (1 + q'_i . k'_j) v_j / sum_j (1 + q'_i . k'_j)      j <= i      x' = x / ||x||_2

Source: the weights of Li et al. 2020, arXiv 2007.14902, equation 11; the paper has no causal form,
which follows from its being a sum over keys. Features: phi(x) = [1, x'], so that the weight is one
product. Norms and denominator are clamped as in linattn.methods.taylor; the first token meets but
one key, and where that points away from it, there is nothing but the clamp.
Cost: O(N D E) time, in chunks (linattn.recurrent); no tensor of N x D x E.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor

from linattn.causal import ONE_HEAD, CausalAttention
from linattn.contract import Capabilities, Method
from linattn.methods.taylor import TaylorConfig, taylor_oracle
from linattn.numerics import unit_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalTaylorConfig(TaylorConfig):
    """The options of linattn.methods.taylor."""

    method: ClassVar[str] = "causal_taylor"


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: CausalTaylorConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights 1 + cos; run it in float64."""
    return taylor_oracle(query, key, value, mask, config, causal=True)


class CausalTaylorAttention(CausalAttention):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.norm_eps = float(config.norm_eps)
        self.eps = float(config.eps)

    def features(self, x: Tensor) -> Tensor:
        """``[1, x']``."""
        return torch.cat((torch.ones_like(x[..., :1]), unit_rows(x, self.norm_eps)), dim=-1)

    def feature_width(self, width: int) -> int:
        """See CausalAttention."""
        return width + 1

    def divided(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """The output."""
        return numerator / torch.clamp(denominator, min=self.eps)


METHOD = Method(
    name="causal_taylor",
    title="Causal first-order Taylor attention",
    formula="out_i = sum_j (1 + q'_i k'_j) v_j / sum_j (1 + q'_i k'_j), j <= i, unit rows",
    source="Li et al. 2020, arXiv 2007.14902",
    when=(
        "As `taylor`, where no token may see a later one. Weights are even, and nothing is "
        "forgotten: for short sequences, or beside local attention."
    ),
    config=CausalTaylorConfig,
    module=CausalTaylorAttention,
    oracle=oracle,
    capabilities=Capabilities(
        cost="linear",
        cross_attention=False,
        permutation_equivariant=False,
        causal=True,
        recurrent=True,
    ),
    limits=ONE_HEAD,
)
