"""DeltaNet: every token corrects what the state holds for its key.

    q, k, v = silu(conv(x W_q)), silu(conv(x W_k)), silu(conv(x W_v)); q, k of unit length
    beta = sigmoid(x W_b)
    S_t = (I - beta k k^T) S_{t-1} + beta k v^T
    out = (rms(S^T q / sqrt(D)) w) W_o

Source: Schlag, Irie, Schmidhuber 2021, arXiv 2102.11174; Yang, Wang, Zhang, Shen, Kim 2024, arXiv
2406.06484, section 3.4; conventions and names of parameters as in flash-linear-attention's
DeltaNet with its defaults.
Cost: O(N D E) time, in chunks (linattn.recurrent).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor

from linattn.causal import ONE_HEAD
from linattn.contract import Capabilities, LayerMethod
from linattn.layers.base import Projected, width_of
from linattn.layers.definition import alone, linear, recurred
from linattn.layers.delta_rule import DeltaRuleLayer, defined_corrections
from linattn.layers.options import at_least, positive
from linattn.numerics import rms_rows, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaConfig:
    """``conv_size``: taps of the convolution.

    ``eps``: added to the mean in the norm; ``unit_eps``: to the sum of squares of keys and queries.
    """

    conv_size: int = 4
    eps: float = 1e-5
    unit_eps: float = 1e-6

    def __post_init__(self) -> None:
        at_least("delta.conv_size", self.conv_size, 2)
        positive("delta.eps", self.eps)
        positive("delta.unit_eps", self.unit_eps)


def oracle(
    hidden_states: Tensor,
    mask: Tensor | None,
    config: DeltaConfig,
    heads: int,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, token after token; run it in float64."""
    p = parameters

    def layer(x: Tensor) -> Tensor:
        query, key, value, beta = defined_corrections(x, config, [heads] * 3, p)
        output = recurred(query, key, value, None, beta, query.shape[-1] ** -0.5)
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
        return linear((output * p["norm_weight"]).flatten(2), p, "o_proj")

    return alone(hidden_states, mask, layer)


class DeltaLayer(DeltaRuleLayer):
    """See the head of this file."""

    def __init__(self, d_model: int, heads: int, config: DeltaConfig) -> None:
        width = width_of("delta", d_model, heads)
        super().__init__(d_model, heads, config, width=width, key_heads=heads)

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """See RecurrentLayer."""
        made = self.corrections(hidden_states, mask, conv, one_token)
        return Projected(
            query=made.query,
            key=made.key,
            value=made.value,
            decay=None,
            beta=made.beta,
            conv=made.conv,
            skip=made.value,
        )

    def finish(self, output: Tensor, skip: Tensor, hidden_states: Tensor) -> Tensor:
        """See RecurrentLayer."""
        normed = rms_rows(widen(output), widen(self.norm_weight), self.eps).flatten(2)
        joined: Tensor = self.o_proj(normed.to(hidden_states.dtype))
        return joined


METHOD = LayerMethod(
    name="delta",
    title="DeltaNet",
    formula="S_t = (I - beta k k^T) S_{t-1} + beta k v^T, out = rms(S^T q)",
    source="Yang et al. 2024, arXiv 2406.06484",
    when=(
        "Where a token must replace what an earlier one wrote under the same key, as in recalling "
        "pairs. Nothing fades by itself: take `gated_delta` for long texts."
    ),
    config=DeltaConfig,
    layer=DeltaLayer,
    oracle=oracle,
    capabilities=Capabilities(
        cost="linear",
        cross_attention=False,
        permutation_equivariant=False,
        causal=True,
        divides_rows=True,
        recurrent=True,
    ),
    limits=ONE_HEAD,
)
