"""Gated DeltaNet: the delta rule with a learned decay for each head.

    q, k, v = silu(conv(x W_q)), silu(conv(x W_k)), silu(conv(x W_v)); q, k of unit length
    g = -exp(A) softplus(x W_a + b_dt)      beta = sigmoid(x W_b)
    S_t = (I - beta k k^T) exp(g) S_{t-1} + beta k v^T
    out = (rms(S^T q / sqrt(D)) w silu(x W_g)) W_o

Source: Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464; conventions (unit length with eps 1e-6
under the root, one decay for each value head, key heads repeated for neighbours, gate after the
norm) as in Qwen3-Next and in flash-linear-attention, whose names the parameters have.
Cost: O(N D E) time, in chunks (linattn.recurrent).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from linattn.causal import ONE_HEAD
from linattn.contract import Capabilities, LayerMethod
from linattn.layers.base import Projected, width_of
from linattn.layers.definition import alone, linear, recurred
from linattn.layers.delta_rule import DeltaRuleLayer, defined_corrections
from linattn.layers.options import at_least, divides, positive
from linattn.layers.start import decay_rates, step_biases
from linattn.numerics import rms_rows, silu, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaConfig:
    """``key_heads``: 0 for as many as heads. ``head_width``: 0 for d_model / heads.

    ``value_width``: of the values of a head; 0 for ``head_width``. ``neg_eigval``: beta goes up to
    2, so that what a key holds may change its sign (Grazzi et al. 2024, arXiv 2411.12537).
    ``conv_size``: taps of the convolution. ``eps``: added to the mean in the norm; ``unit_eps``:
    to the sum of squares of keys and queries.
    """

    key_heads: int = 0
    head_width: int = 0
    value_width: int = 0
    neg_eigval: bool = False
    conv_size: int = 4
    eps: float = 1e-6
    unit_eps: float = 1e-6

    def __post_init__(self) -> None:
        at_least("gated_delta.key_heads", self.key_heads, 0)
        at_least("gated_delta.head_width", self.head_width, 0)
        at_least("gated_delta.value_width", self.value_width, 0)
        at_least("gated_delta.conv_size", self.conv_size, 2)
        positive("gated_delta.eps", self.eps)
        positive("gated_delta.unit_eps", self.unit_eps)


def oracle(
    hidden_states: Tensor,
    mask: Tensor | None,
    config: GatedDeltaConfig,
    heads: int,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, token after token; run it in float64."""
    p = parameters

    def layer(x: Tensor) -> Tensor:
        key_heads = config.key_heads or heads
        query, key, value, beta = defined_corrections(x, config, [key_heads, key_heads, heads], p)
        beta = 2 * beta if config.neg_eigval else beta
        decay = -p["A_log"].exp() * softplus(linear(x, p, "a_proj") + p["dt_bias"])
        output = recurred(query, key, value, decay, beta, query.shape[-1] ** -0.5)
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
        gate = nn.functional.silu(linear(x, p, "g_proj"))
        return linear((output * p["norm_weight"]).flatten(2) * gate, p, "o_proj")

    return alone(hidden_states, mask, layer)


class GatedDeltaLayer(DeltaRuleLayer):
    """See the head of this file."""

    def __init__(self, d_model: int, heads: int, config: GatedDeltaConfig) -> None:
        width = config.head_width or width_of("gated_delta", d_model, heads)
        key_heads = config.key_heads or heads
        divides("gated_delta.key_heads", key_heads, heads)
        super().__init__(
            d_model,
            heads,
            config,
            width=width,
            key_heads=key_heads,
            value_width=config.value_width,
        )
        self.beta_scale = 2.0 if config.neg_eigval else 1.0
        self.a_proj = nn.Linear(d_model, heads, bias=False)
        self.g_proj = nn.Linear(d_model, heads * self.value_width, bias=False)
        self.A_log = nn.Parameter(decay_rates(heads))
        self.dt_bias = nn.Parameter(step_biases(heads))

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """See RecurrentLayer."""
        x = hidden_states
        made = self.corrections(x, mask, conv, one_token)
        steps = softplus(widen(self.a_proj(x)) + widen(self.dt_bias))
        return Projected(
            query=made.query,
            key=made.key,
            value=made.value,
            decay=-torch.exp(widen(self.A_log)) * steps,
            beta=made.beta * self.beta_scale,
            conv=made.conv,
            skip=widen(self.g_proj(x)),
        )

    def finish(self, output: Tensor, skip: Tensor, hidden_states: Tensor) -> Tensor:
        """See RecurrentLayer."""
        normed = rms_rows(widen(output), widen(self.norm_weight), self.eps).flatten(2)
        joined: Tensor = self.o_proj((normed * silu(skip)).to(hidden_states.dtype))
        return joined


METHOD = LayerMethod(
    name="gated_delta",
    title="Gated DeltaNet",
    formula="S_t = (I - beta k k^T) exp(g) S_{t-1} + beta k v^T, out = rms(S^T q) silu(gate)",
    source="Yang et al. 2024, arXiv 2412.06464",
    when=(
        "As the first method to try for a language model: it corrects, as `delta` does, and "
        "forgets, at one rate for each head. It is the layer of Qwen3-Next, whose sizes "
        "`key_heads` and `head_width` take; the model `bytes` has trained weights for it."
    ),
    config=GatedDeltaConfig,
    layer=GatedDeltaLayer,
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
