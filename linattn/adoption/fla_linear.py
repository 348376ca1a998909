"""flash-linear-attention's ``LinearAttention``: a feature map and the recurrence without a decay.

    S_t = S_{t-1} + phi(k) phi(v)^T      out = rms(S^T phi(q) / sqrt(F) (/ the same of ones)) W_o

Source: Katharopoulos et al. 2020, arXiv 2006.16236; feature maps: products (Hadamard), Zhang et al.
2024, arXiv 2402.04347 (hedgehog), Kasai et al. 2021, arXiv 2103.13076 (t2r).
"""

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Unsupported
from linattn.layers.base import Projected, RecurrentLayer
from linattn.numerics import by_head, elu_plus_one, rms_rows, widen

SUM_EPS, NORM_EPS = 1e-4, 1e-10
"""Constants of the package: added to the sums of features, and to the normaliser."""


class Products(nn.Module):
    """Two linear maps, multiplied."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Of ``x [.., D]``."""
        product: Tensor = self.layer1(x) * self.layer2(x)
        return product


class Hedgehog(nn.Module):
    """A softmax of a linear map, twice its size, and of its negative."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """``[.., 2 D]`` of ``x [.., D]``."""
        y = 2 * self.layer(x)
        return torch.softmax(torch.cat((y, -y), dim=-1), dim=-1)


class T2R(nn.Module):
    """The positive part of a linear map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of ``x [.., D]``."""
        return torch.relu(self.layer(x))


class EluPlusOne(nn.Module):
    """``elu(x) + 1``."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Of ``x [.., D]``."""
        return elu_plus_one(x)


FEATURE_MAPS: dict[str, Callable[[int], nn.Module]] = {
    "elementwise_product": Products,
    "hedgehog": Hedgehog,
    "t2r": T2R,
    "elu": EluPlusOne,
    "relu": lambda width: nn.ReLU(),
    "identity": lambda width: nn.Identity(),
}


class LinearLayer(RecurrentLayer):
    """``[B, N, M]`` of hidden states and a mask; masked keys are in neither sum.

    Args:
        options: :class:`linattn.adoption.fla.LinearAttention`.
    """

    def __init__(self, options: Any) -> None:
        if options.feature_map not in FEATURE_MAPS:
            raise Unsupported(
                f"feature_map={options.feature_map!r} is not supported; supported: "
                f"{', '.join(FEATURE_MAPS)}"
            )
        size, heads = options.hidden_size, options.num_heads
        keys, values = int(size * options.expand_k), int(size * options.expand_v)
        width = keys // heads * (2 if options.feature_map == "hedgehog" else 1)
        super().__init__(
            size,
            heads,
            options,
            key_width=width,
            # What the normaliser is the sum of is one more value, 1.
            value_width=values // heads + (1 if options.do_feature_map_norm else 0),
            scale=width**-0.5,
        )
        self.kv_heads = int(options.num_kv_heads or heads)
        self.normalize = bool(options.do_feature_map_norm)
        self.norm_q, self.norm_k = bool(options.norm_q), bool(options.norm_k)
        shared = heads // self.kv_heads
        self.q_proj = nn.Linear(size, keys, bias=False)
        self.k_proj = nn.Linear(size, keys // shared, bias=False)
        self.v_proj = nn.Linear(size, values // shared, bias=False)
        self.o_proj = nn.Linear(values, size, bias=False)
        feature_map = FEATURE_MAPS[options.feature_map]
        self.feature_map_q = feature_map(keys // heads)
        tied = options.tie_feature_map_qk
        self.feature_map_k = self.feature_map_q if tied else feature_map(keys // heads)
        self.eps = float(options.norm_eps)
        self.sum_eps, self.total_eps = SUM_EPS, NORM_EPS
        normed = options.output_norm == "rmsnorm"
        self.norm_weight = nn.Parameter(torch.ones(values // heads)) if normed else None

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """See RecurrentLayer."""
        query = self.feature_map_q(by_head(self.q_proj(hidden_states), self.heads))
        key = self.feature_map_k(by_head(self.k_proj(hidden_states), self.kv_heads))
        value = widen(by_head(self.v_proj(hidden_states), self.kv_heads))
        query, key = widen(query), widen(key)
        if self.norm_q:
            query = query / (query.sum(dim=-1, keepdim=True) + self.sum_eps)
        if self.norm_k:
            key = key / (key.sum(dim=-1, keepdim=True) + self.sum_eps)
        if self.normalize:
            value = torch.cat((value, torch.ones_like(value[..., :1])), dim=-1)
        return Projected(
            query=query, key=key, value=value, decay=None, beta=None, conv=conv, skip=value
        )

    def finish(self, output: Tensor, skip: Tensor, hidden_states: Tensor) -> Tensor:
        """See RecurrentLayer."""
        output = widen(output)
        if self.normalize:
            output = output[..., :-1] / (output[..., -1:] + self.total_eps)
        weight = self.norm_weight
        if weight is not None:
            output = rms_rows(output, widen(weight), self.eps)
        joined: Tensor = self.o_proj(output.flatten(2).to(hidden_states.dtype))
        return joined
