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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn

from linattn.causal import ONE_HEAD
from linattn.contract import Capabilities, LayerMethod
from linattn.layers.base import Projected, RecurrentLayer, width_of
from linattn.layers.definition import alone, convolved, linear, recurred
from linattn.layers.options import at_least, positive
from linattn.layers.start import convolution_weight
from linattn.numerics import by_head, logistic, rms_rows, silu, unit_keys, widen
from linattn.recurrent.convolution import causal_convolution


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
        packed = torch.cat([linear(x, p, name) for name in ("q_proj", "k_proj", "v_proj")], dim=-1)
        packed = nn.functional.silu(convolved(packed, p["conv_weight"], None))
        query, key, value = (by_head(part, heads) for part in packed.chunk(3, dim=-1))
        query = query / torch.sqrt(query.square().sum(-1, keepdim=True) + config.unit_eps)
        key = key / torch.sqrt(key.square().sum(-1, keepdim=True) + config.unit_eps)
        beta = torch.sigmoid(linear(x, p, "b_proj"))
        output = recurred(query, key, value, None, beta, query.shape[-1] ** -0.5)
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
        return linear((output * p["norm_weight"]).flatten(2), p, "o_proj")

    return alone(hidden_states, mask, layer)


class DeltaLayer(RecurrentLayer):
    """See the head of this file."""

    def __init__(self, d_model: int, heads: int, config: DeltaConfig) -> None:
        width = width_of("delta", d_model, heads)
        super().__init__(
            d_model,
            heads,
            config,
            key_width=width,
            value_width=width,
            scale=1 / math.sqrt(width),
            conv_channels=3 * d_model,
            conv_size=config.conv_size,
        )
        self.eps, self.unit_eps = float(config.eps), float(config.unit_eps)
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.b_proj = nn.Linear(d_model, heads, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.conv_weight = convolution_weight(self.conv_channels, config.conv_size)
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
        packed = by_head(silu(packed), 3 * self.heads)
        query, key, value = torch.split(packed, [self.heads] * 3, dim=2)
        return Projected(
            query=unit_keys(query, self.unit_eps),
            key=unit_keys(key, self.unit_eps),
            value=value,
            decay=None,
            beta=logistic(widen(self.b_proj(x))),
            conv=conv,
            skip=value,
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
