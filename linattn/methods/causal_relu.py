"""Causal linear attention with the feature map relu(x).

    out_i = phi(q_i) S_i / (phi(q_i) . z_i + eps)          phi(x) = max(x, 0)
    S_i = sum_{j <= i} phi(k_j) v_j^T                      z_i = sum_{j <= i} phi(k_j)

Source: the feature map of Cai et al. 2022, arXiv 2205.14756, in the causal sums of Katharopoulos
et al. 2020, arXiv 2006.16236, section 3.3. eps as in linattn.methods.relu. No 1/sqrt(D).
Cost: O(N D E) time, in chunks (linattn.recurrent); no tensor of N x D x E.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor

from linattn.causal import ONE_HEAD, CausalAttention
from linattn.contract import Capabilities, Method
from linattn.kernel import kernel_oracle
from linattn.methods.relu import ReluConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalReluConfig(ReluConfig):
    """The options of linattn.methods.relu."""

    method: ClassVar[str] = "causal_relu"


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: CausalReluConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights; run it in float64."""
    phi_query, phi_key = query.clamp(min=0), key.clamp(min=0)
    return kernel_oracle(phi_query, phi_key, value, mask, True, config.eps, causal=True)


class CausalReluAttention(CausalAttention):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.eps = float(config.eps)

    def features(self, x: Tensor) -> Tensor:
        """relu(x)."""
        return torch.relu(x)

    def divided(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """The output."""
        return numerator / (denominator + self.eps)


METHOD = Method(
    name="causal_relu",
    title="Causal ReLU linear attention",
    formula="out_i = relu(q_i) S_i / (relu(q_i) z_i + eps), sums over j <= i",
    source="Cai et al. 2022, arXiv 2205.14756; Katharopoulos et al. 2020, arXiv 2006.16236",
    when=(
        "As `causal_elu`, with the cheaper feature map. A query without a positive feature gets "
        "zeros."
    ),
    config=CausalReluConfig,
    module=CausalReluAttention,
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
