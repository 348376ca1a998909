"""Causal linear attention with the feature map elu(x) + 1.

    out_i = phi(q_i) S_i / (phi(q_i) . z_i + eps)          phi(x) = elu(x) + 1
    S_i = sum_{j <= i} phi(k_j) v_j^T                      z_i = sum_{j <= i} phi(k_j)

Source: Katharopoulos, Vyas, Pappas, Fleuret, "Transformers are RNNs", 2020, arXiv 2006.16236,
section 3.3; eps = 1e-6 added to the normaliser as in the authors' code. No 1/sqrt(D).
Cost: O(N D E) time, in chunks (linattn.recurrent); no tensor of N x D x E.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

from torch import Tensor

from linattn.causal import ONE_HEAD, CausalAttention
from linattn.contract import Capabilities, Method
from linattn.kernel import kernel_oracle
from linattn.methods.elu import EluConfig, phi
from linattn.numerics import elu_plus_one


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalEluConfig(EluConfig):
    """The options of linattn.methods.elu."""

    method: ClassVar[str] = "causal_elu"


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: CausalEluConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights; run it in float64."""
    return kernel_oracle(
        phi(query), phi(key), value, mask, config.normalize, config.eps, causal=True
    )


class CausalEluAttention(CausalAttention):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.normalize: bool = config.normalize
        self.eps = float(config.eps)

    def features(self, x: Tensor) -> Tensor:
        """elu(x) + 1."""
        return elu_plus_one(x)

    def divided(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """The output."""
        return numerator / (denominator + self.eps) if self.normalize else numerator


METHOD = Method(
    name="causal_elu",
    title="Causal linear attention, elu(x) + 1",
    formula="out_i = phi(q_i) S_i / (phi(q_i) z_i + eps), sums over j <= i, phi = elu + 1",
    source="Katharopoulos et al. 2020, arXiv 2006.16236",
    when=(
        "For a decoder without gates. It never forgets: for long texts take a method whose state "
        "decays, such as `gated_delta`."
    ),
    config=CausalEluConfig,
    module=CausalEluAttention,
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
