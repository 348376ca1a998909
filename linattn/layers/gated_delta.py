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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from linattn.causal import ONE_HEAD
from linattn.contract import Capabilities, LayerMethod
from linattn.layers.base import Projected, RecurrentLayer, width_of
from linattn.layers.definition import alone, convolved, linear, recurred
from linattn.layers.options import at_least, divides, positive
from linattn.layers.start import convolution_weight, decay_rates, step_biases
from linattn.numerics import by_head, logistic, rms_rows, silu, unit_keys, widen
from linattn.recurrent.convolution import causal_convolution


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaConfig:
    """``key_heads``: 0 for as many as heads. ``head_width``: 0 for d_model / heads.

    ``conv_size``: taps of the convolution. ``eps``: added to the mean in the norm; ``unit_eps``:
    to the sum of squares of keys and queries.
    """

    key_heads: int = 0
    head_width: int = 0
    conv_size: int = 4
    eps: float = 1e-6
    unit_eps: float = 1e-6

    def __post_init__(self) -> None:
        at_least("gated_delta.key_heads", self.key_heads, 0)
        at_least("gated_delta.head_width", self.head_width, 0)
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
    width = p["norm_weight"].shape[0]

    def layer(x: Tensor) -> Tensor:
        names = ("q_proj", "k_proj", "v_proj")
        packed = torch.cat([linear(x, p, name) for name in names], dim=-1)
        packed = torch.unflatten(
            nn.functional.silu(convolved(packed, p["conv_weight"], None)), -1, [-1, width]
        )
        key_heads = config.key_heads or heads
        query, key, value = torch.split(packed, [key_heads, key_heads, heads], dim=2)
        query = query / torch.sqrt(query.square().sum(-1, keepdim=True) + config.unit_eps)
        key = key / torch.sqrt(key.square().sum(-1, keepdim=True) + config.unit_eps)
        decay = -p["A_log"].exp() * softplus(linear(x, p, "a_proj") + p["dt_bias"])
        beta = torch.sigmoid(linear(x, p, "b_proj"))
        output = recurred(query, key, value, decay, beta, width**-0.5)
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
        gate = nn.functional.silu(linear(x, p, "g_proj"))
        return linear((output * p["norm_weight"]).flatten(2) * gate, p, "o_proj")

    return alone(hidden_states, mask, layer)


class GatedDeltaLayer(RecurrentLayer):
    """See the head of this file."""

    def __init__(self, d_model: int, heads: int, config: GatedDeltaConfig) -> None:
        width = config.head_width or width_of("gated_delta", d_model, heads)
        key_heads = config.key_heads or heads
        divides("gated_delta.key_heads", key_heads, heads)
        super().__init__(
            d_model,
            heads,
            config,
            key_width=width,
            value_width=width,
            scale=1 / math.sqrt(width),
            conv_channels=(2 * key_heads + heads) * width,
            conv_size=config.conv_size,
        )
        self.key_heads = key_heads
        self.eps, self.unit_eps = float(config.eps), float(config.unit_eps)
        self.q_proj = nn.Linear(d_model, key_heads * width, bias=False)
        self.k_proj = nn.Linear(d_model, key_heads * width, bias=False)
        self.v_proj = nn.Linear(d_model, heads * width, bias=False)
        self.a_proj = nn.Linear(d_model, heads, bias=False)
        self.b_proj = nn.Linear(d_model, heads, bias=False)
        self.g_proj = nn.Linear(d_model, heads * width, bias=False)
        self.o_proj = nn.Linear(heads * width, d_model, bias=False)
        self.conv_weight = convolution_weight(self.conv_channels, config.conv_size)
        self.A_log = nn.Parameter(decay_rates(heads))
        self.dt_bias = nn.Parameter(step_biases(heads))
        self.norm_weight = nn.Parameter(torch.ones(width))

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """See RecurrentLayer."""
        x = hidden_states
        packed = widen(torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=-1))
        packed, conv = causal_convolution(
            packed, widen(self.conv_weight), None, conv, mask, one_token
        )
        packed = silu(packed)
        keys = self.key_heads * self.key_width
        query, key, value = torch.split(packed, [keys, keys, self.heads * self.value_width], dim=-1)
        steps = softplus(widen(self.a_proj(x)) + widen(self.dt_bias))
        return Projected(
            query=unit_keys(by_head(query, self.key_heads), self.unit_eps),
            key=unit_keys(by_head(key, self.key_heads), self.unit_eps),
            value=by_head(value, self.heads),
            decay=-torch.exp(widen(self.A_log)) * steps,
            beta=logistic(widen(self.b_proj(x))),
            conv=conv,
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
