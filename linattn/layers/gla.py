"""Gated linear attention: a learned decay for each key channel.

    q, k, v = x W_q, x W_k, x W_v      g = log sigmoid(x W_g1 W_g2 + b) / 16
    S_t = diag(exp(g)) S_{t-1} + k v^T
    out = (rms(S^T q / sqrt(D)) w silu(x W_o')) W_o

Source: Yang, Wang, Shen, Panda, Kim 2023, arXiv 2312.06635, section 4.4; names of parameters as in
flash-linear-attention's GatedLinearAttention, keys half as wide as values as there.
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
from linattn.layers.definition import alone, linear, recurred
from linattn.layers.options import at_least, positive
from linattn.numerics import by_head, log_logistic, rms_rows, silu, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class GlaConfig:
    """``expand_key``: width of the keys as a part of d_model. ``gate_rank``: of W_g1 W_g2.

    ``gate_normalizer``: what the log of the gate is divided by. ``eps``: added to the mean in the
    norm.
    """

    expand_key: float = 0.5
    gate_rank: int = 16
    gate_normalizer: float = 16.0
    eps: float = 1e-5

    def __post_init__(self) -> None:
        positive("gla.expand_key", self.expand_key)
        at_least("gla.gate_rank", self.gate_rank, 1)
        positive("gla.gate_normalizer", self.gate_normalizer)
        positive("gla.eps", self.eps)


def oracle(
    hidden_states: Tensor,
    mask: Tensor | None,
    config: GlaConfig,
    heads: int,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, token after token; run it in float64."""
    p = parameters

    def layer(x: Tensor) -> Tensor:
        query, key, value = (
            by_head(linear(x, p, name), heads) for name in ("q_proj", "k_proj", "v_proj")
        )
        gates = linear(linear(x, p, "gk_proj.0"), p, "gk_proj.1")
        decay = torch.sigmoid(gates).log() / config.gate_normalizer
        decay = by_head(decay, heads)
        output = recurred(query, key, value, decay, None, query.shape[-1] ** -0.5)
        output = output / torch.sqrt(output.square().mean(-1, keepdim=True) + config.eps)
        gate = nn.functional.silu(linear(x, p, "g_proj"))
        return linear((output * p["norm_weight"]).flatten(2) * gate, p, "o_proj")

    return alone(hidden_states, mask, layer)


class GlaLayer(RecurrentLayer):
    """See the head of this file."""

    def __init__(self, d_model: int, heads: int, config: GlaConfig) -> None:
        width = width_of("gla", d_model, heads)
        key_width = max(1, int(width * config.expand_key))
        super().__init__(
            d_model,
            heads,
            config,
            key_width=key_width,
            value_width=width,
            scale=1 / math.sqrt(key_width),
        )
        self.eps, self.normalizer = float(config.eps), float(config.gate_normalizer)
        self.q_proj = nn.Linear(d_model, heads * key_width, bias=False)
        self.k_proj = nn.Linear(d_model, heads * key_width, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.gk_proj = nn.Sequential(
            nn.Linear(d_model, config.gate_rank, bias=False),
            nn.Linear(config.gate_rank, heads * key_width),
        )
        self.g_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(width))

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """See RecurrentLayer."""
        x = hidden_states
        return Projected(
            query=by_head(widen(self.q_proj(x)), self.heads),
            key=by_head(widen(self.k_proj(x)), self.heads),
            value=by_head(widen(self.v_proj(x)), self.heads),
            decay=by_head((log_logistic(widen(self.gk_proj(x))) / self.normalizer), self.heads),
            beta=None,
            conv=conv,
            skip=widen(self.g_proj(x)),
        )

    def finish(self, output: Tensor, skip: Tensor, hidden_states: Tensor) -> Tensor:
        """See RecurrentLayer."""
        normed = rms_rows(widen(output), widen(self.norm_weight), self.eps).flatten(2)
        joined: Tensor = self.o_proj((normed * silu(skip)).to(hidden_states.dtype))
        return joined


METHOD = LayerMethod(
    name="gla",
    title="Gated linear attention",
    formula="S_t = diag(exp(g)) S_{t-1} + k v^T, out = rms(S^T q) silu(gate)",
    source="Yang et al. 2023, arXiv 2312.06635",
    when=(
        "Where the model shall learn what to forget, channel by channel. In portable ONNX that "
        "takes about twice as long as one decay for each head, which `mamba2` has."
    ),
    config=GlaConfig,
    layer=GlaLayer,
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
