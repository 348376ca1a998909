"""Lightning attention as in MiniMax-01: a fixed decay for each head, the slopes of ALiBi.

    q, k, v = silu(x W_qkv), for each head
    S_t = exp(-s_h) S_{t-1} + k v^T      s_h = 2^(-8 (h + 1) / H) (1 - l / (L - 1 + 1e-5) + 1e-5)
    out = (sigmoid(x W_g) rms(S^T q) w) W_o      the norm over all heads together

Source: Qin, Sun, Li, Shen, Sun, Zhong 2024, arXiv 2401.04658; MiniMax 2025, arXiv 2501.08313;
conventions and names of parameters as in the published MiniMax model. Other code has other slopes
(flash-linear-attention: 8 h / H, so that the first head never forgets). No 1 / sqrt(D).
Cost: O(N D E) time, in chunks (linattn.recurrent).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, LayerMethod
from linattn.layers.base import Projected, RecurrentLayer, width_of
from linattn.layers.definition import alone, linear, recurred
from linattn.layers.options import at_least, positive
from linattn.numerics import by_head, logistic, rms_rows, silu, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningConfig:
    """``layer`` and ``layers``: the place l in a model of L layers, which the slopes depend on.

    ``head_width``: 0 for d_model / heads. ``eps``: added to the mean in the norm; the published
    model has 1e-6 here, 1e-5 in other norms.
    """

    layer: int = 0
    layers: int = 80
    head_width: int = 0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        at_least("lightning.layers", self.layers, 1)
        at_least("lightning.layer", self.layer, 0)
        at_least("lightning.layers", self.layers, self.layer + 1)
        at_least("lightning.head_width", self.head_width, 0)
        positive("lightning.eps", self.eps)


def slopes(config: LightningConfig, heads: int) -> Tensor:
    """s_h, ``[H]`` in float64."""
    place = 1 - config.layer / (config.layers - 1 + 1e-5) + 1e-5
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=torch.float64) / heads) * place


def oracle(
    hidden_states: Tensor,
    mask: Tensor | None,
    config: LightningConfig,
    heads: int,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, token after token; run it in float64."""
    p = parameters

    def layer(x: Tensor) -> Tensor:
        packed = by_head(nn.functional.silu(linear(x, p, "qkv_proj")), heads)
        query, key, value = packed.chunk(3, dim=-1)
        decay = -slopes(config, heads).expand(*x.shape[:2], heads)
        output = recurred(query, key, value, decay, None, 1.0).flatten(2)
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
        gate = torch.sigmoid(linear(x, p, "output_gate"))
        return linear(output * p["norm_weight"] * gate, p, "out_proj")

    return alone(hidden_states, mask, layer)


class LightningLayer(RecurrentLayer):
    """See the head of this file."""

    def __init__(self, d_model: int, heads: int, config: LightningConfig) -> None:
        width = config.head_width or width_of("lightning", d_model, heads)
        inner = heads * width
        super().__init__(d_model, heads, config, key_width=width, value_width=width, scale=1.0)
        self.eps = float(config.eps)
        self.qkv_proj = nn.Linear(d_model, 3 * inner, bias=False)
        self.output_gate = nn.Linear(d_model, inner, bias=False)
        self.out_proj = nn.Linear(inner, d_model, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(inner))
        self.place = 1 - config.layer / (config.layers - 1 + 1e-5) + 1e-5

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """See RecurrentLayer."""
        packed = silu(widen(self.qkv_proj(hidden_states)))
        packed = by_head(packed, self.heads)
        query, key, value = torch.split(packed, [self.key_width] * 3, dim=-1)
        head = query.new_ones([self.heads]).cumsum(0)  # h + 1
        rates = -torch.exp2(-8.0 / self.heads * head) * self.place
        return Projected(
            query=query,
            key=key,
            value=value,
            decay=torch.ones_like(query[..., 0]) * rates,
            beta=None,
            conv=conv,
            skip=widen(self.output_gate(hidden_states)),
        )

    def finish(self, output: Tensor, skip: Tensor, hidden_states: Tensor) -> Tensor:
        """See RecurrentLayer."""
        normed = rms_rows(widen(output).flatten(2), widen(self.norm_weight), self.eps)
        joined: Tensor = self.out_proj((logistic(skip) * normed).to(hidden_states.dtype))
        return joined


METHOD = LayerMethod(
    name="lightning",
    title="Lightning attention, as in MiniMax-01",
    formula="S_t = exp(-s_h) S_{t-1} + k v^T, out = rms(S^T q) sigmoid(gate)",
    source="Qin et al. 2024, arXiv 2401.04658",
    when=(
        "To run weights of the published model, or where a fixed decay and a learned gate on the "
        "output are enough. Set `layer` and `layers` for each layer of a model: the decay depends "
        "on them."
    ),
    config=LightningConfig,
    layer=LightningLayer,
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
