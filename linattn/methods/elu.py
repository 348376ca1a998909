"""Linear attention with the feature map elu(x) + 1.

    out_i = phi(q_i) S / (phi(q_i) . z + eps)      phi(x) = elu(x) + 1
    S = sum_j phi(k_j) v_j^T                       z = sum_j phi(k_j)

Source: Katharopoulos, Vyas, Pappas, Fleuret, "Transformers are RNNs", 2020, arXiv 2006.16236,
section 3.2; eps = 1e-6 added to the normaliser as in the authors' code. No 1/sqrt(D).
Cost: O(N D E) time, O(D E) memory beyond inputs and outputs.
Numerics: elu(x) + 1 is computed without cancellation (linattn.numerics). Where all features of
the keys are below eps / N the result shrinks towards zero, by definition.
``normalize=False`` drops the normaliser: the output then grows with N.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, Method, MethodError
from linattn.kernel import kernel_attention, kernel_oracle
from linattn.numerics import check_heads, column_mask, elu_plus_one, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class EluConfig:
    """``normalize``: divide by the sum of the weights. ``eps``: added to that sum."""

    normalize: bool = True
    eps: float = 1e-6

    method: ClassVar[str] = "elu"

    def __post_init__(self) -> None:
        if not 0 < self.eps < math.inf:
            raise MethodError(f"{self.method}.eps must be above 0 and finite, got {self.eps!r}")


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: EluConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights; run it in float64."""
    return kernel_oracle(phi(query), phi(key), value, mask, config.normalize, config.eps)


def phi(x: Tensor) -> Tensor:
    """The feature map as it is defined, for oracles."""
    return torch.where(x > 0, x + 1, torch.exp(x))


class EluAttention(nn.Module):
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
        check_heads(query, key, value)
        column = column_mask(mask, key) if mask is not None else None
        output = kernel_attention(
            elu_plus_one(widen(query)),
            elu_plus_one(widen(key)),
            widen(value),
            column,
            self.normalize,
            self.eps,
        )
        return output.to(query.dtype)


METHOD = Method(
    name="elu",
    title="Linear attention, elu(x) + 1",
    formula="phi(Q) (phi(K)^T V) / (phi(Q) sum phi(K) + eps), phi = elu + 1",
    source="Katharopoulos et al. 2020, arXiv 2006.16236",
    when=(
        "As the first linear method to try: every weight is positive, no option needs a choice, "
        "and `causal_elu` is its causal form, with parameters of the same shapes."
    ),
    config=EluConfig,
    module=EluAttention,
    oracle=oracle,
    capabilities=Capabilities(cost="linear"),
)
