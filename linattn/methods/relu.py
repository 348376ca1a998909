"""Linear attention with the feature map relu(x).

    out_i = phi(q_i) S / (phi(q_i) . z + eps)      phi(x) = max(x, 0)
    S = sum_j phi(k_j) v_j^T                       z = sum_j phi(k_j)

Source: Cai, Li, Hu, Gan, Han, "EfficientViT", 2022, arXiv 2205.14756, section 3.1, and SANA (Xie
et al. 2024, arXiv 2410.10629). Published eps: 1e-15 (both papers' code), 1e-5 (timm); 1e-15
vanishes beside float32 sums of any size, so the default here is 1e-6. No 1/sqrt(D).
Cost: O(N D E) time, O(D E) memory beyond inputs and outputs.
Numerics: a query with no positive feature gives 0 / eps = 0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, Method, MethodError
from linattn.kernel import kernel_attention, kernel_oracle
from linattn.numerics import check_heads, column_mask, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReluConfig:
    """``eps``: added to the sum of the weights."""

    eps: float = 1e-6

    method: ClassVar[str] = "relu"

    def __post_init__(self) -> None:
        if not 0 < self.eps < math.inf:
            raise MethodError(f"{self.method}.eps must be above 0 and finite, got {self.eps!r}")


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: ReluConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights; run it in float64."""
    return kernel_oracle(query.clamp(min=0), key.clamp(min=0), value, mask, True, config.eps)


class ReluAttention(nn.Module):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.eps = float(config.eps)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes."""
        check_heads(query, key, value)
        column = column_mask(mask, key) if mask is not None else None
        output = kernel_attention(
            torch.relu(widen(query)),
            torch.relu(widen(key)),
            widen(value),
            column,
            True,
            self.eps,
        )
        return output.to(query.dtype)


METHOD = Method(
    name="relu",
    title="ReLU linear attention",
    formula="relu(Q) (relu(K)^T V) / (relu(Q) sum relu(K) + eps)",
    source="Cai et al. 2022 (EfficientViT), arXiv 2205.14756",
    when=(
        "For vision models in the manner of EfficientViT: its feature map is the cheapest. A query "
        "without a positive feature gets zeros."
    ),
    config=ReluConfig,
    module=ReluAttention,
    oracle=oracle,
    capabilities=Capabilities(cost="linear"),
)
