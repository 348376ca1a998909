"""Kimi Delta Attention: the delta rule with a learned decay for each key channel.

    q, k, v = silu(conv(x W_q)), silu(conv(x W_k)), silu(conv(x W_v)); q, k of unit length
    g = -exp(A_h) softplus(x W_f W_f' + b_dt)      beta = sigmoid(x W_b)
    S_t = (I - beta k k^T) diag(exp(g)) S_{t-1} + beta k v^T
    out = (rms(S^T q / sqrt(D)) w sigmoid(x W_g W_g' + b_g)) W_o

Source: Kimi Team 2025, arXiv 2510.26692; conventions and names of parameters as in
flash-linear-attention's KimiDeltaAttention: both W_f and W_g are of the rank of one head.
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
from linattn.layers.options import at_least, positive
from linattn.layers.start import decay_rates, step_biases
from linattn.numerics import by_head, logistic, rms_rows, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaConfig:
    """``head_width``: 0 for d_model / heads. ``conv_size``: taps of the convolution.

    ``eps``: added to the mean in the norm; ``unit_eps``: to the sum of squares of keys and queries.
    """

    head_width: int = 0
    conv_size: int = 4
    eps: float = 1e-5
    unit_eps: float = 1e-6

    def __post_init__(self) -> None:
        at_least("kda.head_width", self.head_width, 0)
        at_least("kda.conv_size", self.conv_size, 2)
        positive("kda.eps", self.eps)
        positive("kda.unit_eps", self.unit_eps)


def oracle(
    hidden_states: Tensor,
    mask: Tensor | None,
    config: KdaConfig,
    heads: int,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, token after token; run it in float64."""
    p = parameters

    def layer(x: Tensor) -> Tensor:
        query, key, value, beta = defined_corrections(x, config, [heads] * 3, p)
        steps = linear(linear(x, p, "f_proj.0"), p, "f_proj.1") + p["dt_bias"]
        rates = -p["A_log"].exp().unsqueeze(-1)
        decay = rates * by_head(softplus(steps), heads)
        output = recurred(query, key, value, decay, beta, query.shape[-1] ** -0.5)
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
        gate = torch.sigmoid(linear(linear(x, p, "g_proj.0"), p, "g_proj.1"))
        return linear((output * p["norm_weight"]).flatten(2) * gate, p, "o_proj")

    return alone(hidden_states, mask, layer)


class KdaLayer(DeltaRuleLayer):
    """See the head of this file."""

    def __init__(self, d_model: int, heads: int, config: KdaConfig) -> None:
        width = config.head_width or width_of("kda", d_model, heads)
        super().__init__(d_model, heads, config, width=width, key_heads=heads)
        self.f_proj = _low_rank(d_model, width, heads * width, bias=False)
        self.g_proj = _low_rank(d_model, width, heads * width, bias=True)
        self.A_log = nn.Parameter(decay_rates(heads))
        self.dt_bias = nn.Parameter(step_biases(heads * width))

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """See RecurrentLayer."""
        x = hidden_states
        made = self.corrections(x, mask, conv, one_token)
        steps = softplus(widen(self.f_proj(x)) + widen(self.dt_bias))
        rates = -torch.exp(widen(self.A_log)).unsqueeze(-1)
        return Projected(
            query=made.query,
            key=made.key,
            value=made.value,
            decay=rates * by_head(steps, self.heads),
            beta=made.beta,
            conv=made.conv,
            skip=widen(self.g_proj(x)),
        )

    def finish(self, output: Tensor, skip: Tensor, hidden_states: Tensor) -> Tensor:
        """See RecurrentLayer."""
        normed = rms_rows(widen(output), widen(self.norm_weight), self.eps).flatten(2)
        joined: Tensor = self.o_proj((normed * logistic(skip)).to(hidden_states.dtype))
        return joined


def _low_rank(d_model: int, rank: int, width: int, *, bias: bool) -> nn.Sequential:
    return nn.Sequential(nn.Linear(d_model, rank, bias=False), nn.Linear(rank, width, bias=bias))


METHOD = LayerMethod(
    name="kda",
    title="Kimi Delta Attention",
    formula="S_t = (I - beta k k^T) diag(exp(g)) S_{t-1} + beta k v^T, out = rms(S^T q) gate",
    source="Kimi Team 2025, arXiv 2510.26692",
    when=(
        "As `gated_delta`, where one rate of forgetting for each channel is wanted. In portable "
        "ONNX it takes twice as long for that; as one node (`--onnx-form ms`) the two are closer."
    ),
    config=KdaConfig,
    layer=KdaLayer,
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
