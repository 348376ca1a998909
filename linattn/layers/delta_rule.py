"""What the layers of the delta rules share: keys of unit length behind a short convolution.

q, k, v = silu(conv(x W_q)), silu(conv(x W_k)), silu(conv(x W_v)); q, k of unit length
beta = sigmoid(x W_b)
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn

from linattn.layers.base import RecurrentLayer
from linattn.layers.definition import convolved, linear
from linattn.layers.start import convolution_weight
from linattn.numerics import by_head, logistic, silu, unit_keys, widen
from linattn.recurrent.convolution import causal_convolution


class Corrections(NamedTuple):
    """Query and key ``[B, N, Hk, D]``, value ``[B, N, H, E]``, beta ``[B, N, H]``.

    ``conv`` is the state of the convolution after them.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    beta: Tensor
    conv: Tensor


class DeltaRuleLayer(RecurrentLayer):
    """Base of the layers.

    Args:
        d_model: model width M.
        heads: number of states.
        config: with ``conv_size``, ``eps`` and ``unit_eps``.
        width: D, and E unless ``value_width`` is another.
        key_heads: heads of queries and keys.
        value_width: E; 0 for D.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        config: Any,
        *,
        width: int,
        key_heads: int,
        value_width: int = 0,
    ) -> None:
        value_width = value_width or width
        super().__init__(
            d_model,
            heads,
            config,
            key_width=width,
            value_width=value_width,
            scale=1 / math.sqrt(width),
            conv_channels=2 * key_heads * width + heads * value_width,
            conv_size=config.conv_size,
        )
        self.key_heads = key_heads
        self.eps, self.unit_eps = float(config.eps), float(config.unit_eps)
        self.q_proj = nn.Linear(d_model, key_heads * width, bias=False)
        self.k_proj = nn.Linear(d_model, key_heads * width, bias=False)
        self.v_proj = nn.Linear(d_model, heads * value_width, bias=False)
        self.b_proj = nn.Linear(d_model, heads, bias=False)
        self.o_proj = nn.Linear(heads * value_width, d_model, bias=False)
        self.conv_weight = convolution_weight(self.conv_channels, config.conv_size)
        self.norm_weight = nn.Parameter(torch.ones(value_width))

    def corrections(
        self, x: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Corrections:
        """What the rule takes of hidden states ``x [B, N, M]``, but for its decay."""
        packed = widen(torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=-1))
        packed, conv = causal_convolution(
            packed, widen(self.conv_weight), None, conv, mask, one_token
        )
        keys, values = self.key_heads * self.key_width, self.heads * self.value_width
        query, key, value = torch.split(silu(packed), [keys, keys, values], dim=-1)
        return Corrections(
            query=unit_keys(by_head(query, self.key_heads), self.unit_eps),
            key=unit_keys(by_head(key, self.key_heads), self.unit_eps),
            value=by_head(value, self.heads),
            beta=logistic(widen(self.b_proj(x))),
            conv=conv,
        )


def defined_corrections(
    x: Tensor, config: Any, sizes: list[int], p: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For oracles: query, key, value and beta; ``sizes`` are the heads of the first three."""
    packed = torch.cat([linear(x, p, name) for name in ("q_proj", "k_proj", "v_proj")], dim=-1)
    packed = nn.functional.silu(convolved(packed, p["conv_weight"], None))
    widths = [len(p[f"{name}.weight"]) for name in ("q_proj", "k_proj", "v_proj")]
    parts = torch.split(packed, widths, dim=-1)
    query, key, value = (by_head(part, heads) for part, heads in zip(parts, sizes, strict=True))
    query = query / torch.sqrt(query.square().sum(-1, keepdim=True) + config.unit_eps)
    key = key / torch.sqrt(key.square().sum(-1, keepdim=True) + config.unit_eps)
    return query, key, value, torch.sigmoid(linear(x, p, "b_proj"))
