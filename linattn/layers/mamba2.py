"""Mamba-2: a decay and a step for each head, keys and queries shared by all heads.

    z, (x, B, C), dt = u W_in      (x, B, C) = silu(conv(x, B, C) + b)      dt = softplus(dt + b_dt)
    S_t = exp(-A_h dt) S_{t-1} + B (dt x)^T
    out = (rms((S^T C + D_h x) silu(z)) w) W_out      the norm over all heads together

Source: Dao and Gu 2024, arXiv 2405.21060; conventions and names of parameters as in the published
Mamba-2 models: one group, and the norm after the gate.
Cost: O(N D E) time, in chunks (linattn.recurrent).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from linattn.contract import Capabilities, LayerMethod
from linattn.layers.base import Projected, RecurrentLayer, width_of
from linattn.layers.definition import alone, convolved, linear, recurred
from linattn.layers.options import at_least, positive
from linattn.layers.start import convolution_weight, decay_rates, step_biases
from linattn.numerics import by_head, rms_rows, silu, widen
from linattn.recurrent.convolution import causal_convolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Config:
    """``state_size``: width of B and C. ``expand``: width of x as a multiple of d_model.

    ``conv_size``: taps of the convolution. ``eps``: added to the mean in the norm.
    """

    state_size: int = 64
    expand: int = 2
    conv_size: int = 4
    eps: float = 1e-5

    def __post_init__(self) -> None:
        at_least("mamba2.state_size", self.state_size, 1)
        at_least("mamba2.expand", self.expand, 1)
        at_least("mamba2.conv_size", self.conv_size, 2)
        positive("mamba2.eps", self.eps)


def oracle(
    hidden_states: Tensor,
    mask: Tensor | None,
    config: Mamba2Config,
    heads: int,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, token after token; run it in float64."""
    p = parameters

    def layer(u: Tensor) -> Tensor:
        inner, n = config.expand * u.shape[-1], config.state_size
        gate, packed, steps = torch.split(
            linear(u, p, "in_proj"), [inner, inner + 2 * n, heads], dim=-1
        )
        packed = nn.functional.silu(convolved(packed, p["conv_weight"], p["conv_bias"]))
        x, key, query = torch.split(packed, [inner, n, n], dim=-1)
        steps = softplus(steps + p["dt_bias"])
        x = by_head(x, heads)
        output = recurred(
            query.unsqueeze(2),
            key.unsqueeze(2),
            x * steps.unsqueeze(-1),
            -p["A_log"].exp() * steps,
            None,
            1.0,
        )
        output = (output + p["D"].unsqueeze(-1) * x).flatten(2) * nn.functional.silu(gate)
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
        return linear(output * p["norm_weight"], p, "out_proj")

    return alone(hidden_states, mask, layer)


class Mamba2Layer(RecurrentLayer):
    """See the head of this file."""

    def __init__(self, d_model: int, heads: int, config: Mamba2Config) -> None:
        inner = config.expand * d_model
        super().__init__(
            d_model,
            heads,
            config,
            key_width=config.state_size,
            value_width=width_of("mamba2", inner, heads),
            scale=1.0,
            conv_channels=inner + 2 * config.state_size,
            conv_size=config.conv_size,
        )
        self.eps, self.inner = float(config.eps), inner
        self.in_proj = nn.Linear(d_model, inner + self.conv_channels + heads, bias=False)
        self.out_proj = nn.Linear(inner, d_model, bias=False)
        self.conv_weight = convolution_weight(self.conv_channels, config.conv_size)
        self.conv_bias = nn.Parameter(torch.zeros(self.conv_channels))
        self.A_log = nn.Parameter(decay_rates(heads))
        self.dt_bias = nn.Parameter(step_biases(heads))
        self.D = nn.Parameter(torch.ones(heads))
        self.norm_weight = nn.Parameter(torch.ones(inner))

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """See RecurrentLayer."""
        sizes = [self.inner, self.conv_channels, self.heads]
        gate, packed, steps = torch.split(widen(self.in_proj(hidden_states)), sizes, dim=-1)
        bias = widen(self.conv_bias)
        packed, conv = causal_convolution(
            packed, widen(self.conv_weight), bias, conv, mask, one_token
        )
        sizes = [self.inner, self.key_width, self.key_width]
        x, key, query = torch.split(silu(packed), sizes, dim=-1)
        steps = softplus(steps + widen(self.dt_bias))
        x = by_head(x, self.heads)
        passed = widen(self.D).unsqueeze(-1) * x
        return Projected(
            query=query.unsqueeze(2),
            key=key.unsqueeze(2),
            value=x * steps.unsqueeze(-1),
            decay=-torch.exp(widen(self.A_log)) * steps,
            beta=None,
            conv=conv,
            skip=torch.stack((passed.flatten(2), gate)),
        )

    def finish(self, output: Tensor, skip: Tensor, hidden_states: Tensor) -> Tensor:
        """See RecurrentLayer."""
        gated = (widen(output).flatten(2) + skip[0]) * silu(skip[1])
        normed = rms_rows(gated, widen(self.norm_weight), self.eps)
        joined: Tensor = self.out_proj(normed.to(hidden_states.dtype))
        return joined


METHOD = LayerMethod(
    name="mamba2",
    title="Mamba-2",
    formula="S_t = exp(-A_h dt) S_{t-1} + B (dt x)^T, out = rms((S^T C + D x) silu(z))",
    source="Dao and Gu 2024, arXiv 2405.21060",
    when=(
        "To run weights of published Mamba-2 models, or where a wide layer with one learned decay "
        "for each head is wanted. Its state is the largest here at the same width, and its step "
        "the slowest."
    ),
    config=Mamba2Config,
    layer=Mamba2Layer,
    oracle=oracle,
    capabilities=Capabilities(
        cost="linear",
        cross_attention=False,
        permutation_equivariant=False,
        causal=True,
        divides_rows=True,
        recurrent=True,
    ),
)
