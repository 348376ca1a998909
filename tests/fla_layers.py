"""flash-linear-attention's layers as it describes them, around its own naive recurrences.

The package itself imports Triton. These have its names of classes, options and weights.
"""

from importlib import metadata, util
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def naive(name: str) -> Any:
    """A function of fla-core, whose files need PyTorch only; its packages import Triton."""
    folder, _, function = name.partition(".")
    path = metadata.distribution("fla-core").locate_file(f"fla/ops/{folder}/naive.py")
    spec = util.spec_from_file_location(f"naive_{folder}", str(path))
    assert spec is not None
    assert spec.loader is not None
    loaded = util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return getattr(loaded, function)


class Norm(nn.Module):
    """RMS, with a gate or without."""

    def __init__(self, width: int, affine: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width)) if affine else None
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        x = x if self.weight is None else x * self.weight
        return x if gate is None else x * F.silu(gate)


class ShortConvolution(nn.Module):
    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, 1, taps) / taps**0.5)

    def forward(self, x: Tensor) -> Tensor:
        taps = self.weight.shape[-1]
        x = F.pad(x.transpose(1, 2), (taps - 1, 0))
        return F.silu(F.conv1d(x, self.weight, groups=x.shape[1])).transpose(1, 2)


class Layer(nn.Module):
    """Runs ``attend`` on the real tokens of each sequence alone, as their unpadding does."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
    ) -> tuple[Tensor, None, None]:
        if attention_mask is None:
            return self.attend(hidden_states), None, None
        output = torch.zeros_like(hidden_states)
        for row, mask in enumerate(attention_mask.bool()):
            output[row, mask] = self.attend(hidden_states[row : row + 1, mask])[0]
        return output, None, None

    def attend(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class GatedDeltaNet(Layer):
    def __init__(
        self,
        hidden_size: int,
        expand_v: float = 2.0,
        head_dim: int = 256,
        num_heads: int = 6,
        num_v_heads: int | None = None,
        use_gate: bool = True,
        allow_neg_eigval: bool = False,
        conv_size: int = 4,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.mode, self.use_gate, self.use_short_conv = "chunk", use_gate, True
        self.allow_neg_eigval, self.hidden_size = allow_neg_eigval, hidden_size
        self.conv_size, self.conv_bias = conv_size, False
        self.expand_v, self.head_dim, self.num_heads = expand_v, head_dim, num_heads
        self.num_v_heads = num_v_heads or num_heads
        keys, self.wide = num_heads * head_dim, int(head_dim * expand_v)
        values = self.num_v_heads * self.wide
        self.q_proj, self.k_proj = (nn.Linear(hidden_size, keys, bias=False) for _ in range(2))
        self.v_proj = nn.Linear(hidden_size, values, bias=False)
        self.a_proj = nn.Linear(hidden_size, self.num_v_heads, bias=False)
        self.b_proj = nn.Linear(hidden_size, self.num_v_heads, bias=False)
        self.A_log = nn.Parameter(torch.rand(self.num_v_heads))
        self.dt_bias = nn.Parameter(torch.randn(self.num_v_heads))
        self.q_conv1d = ShortConvolution(keys, conv_size)
        self.k_conv1d = ShortConvolution(keys, conv_size)
        self.v_conv1d = ShortConvolution(values, conv_size)
        self.g_proj = nn.Linear(hidden_size, values, bias=False)
        self.o_norm = Norm(self.wide, eps=norm_eps)
        self.o_proj = nn.Linear(values, hidden_size, bias=False)

    def attend(self, x: Tensor) -> Tensor:
        query, key = (
            conv(proj(x)).unflatten(-1, (-1, self.head_dim))
            for conv, proj in ((self.q_conv1d, self.q_proj), (self.k_conv1d, self.k_proj))
        )
        query, key = (
            y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (query, key)
        )
        shared = self.num_v_heads // self.num_heads
        query, key = (y.repeat_interleave(shared, dim=2) for y in (query, key))
        value = self.v_conv1d(self.v_proj(x)).unflatten(-1, (-1, self.wide))
        beta = self.b_proj(x).sigmoid() * (2 if self.allow_neg_eigval else 1)
        decay = -self.A_log.exp() * F.softplus(self.a_proj(x) + self.dt_bias)
        rule = naive("gated_delta_rule.naive_recurrent_gated_delta_rule")
        output, _ = rule(query, key, value, beta=beta, g=decay)
        output = self.o_norm(output.to(x.dtype), self.g_proj(x).unflatten(-1, (-1, self.wide)))
        joined: Tensor = self.o_proj(output.flatten(2))
        return joined


class GatedLinearAttention(Layer):
    def __init__(
        self,
        hidden_size: int,
        expand_k: float = 0.5,
        num_heads: int = 4,
        clamp_min: float | None = None,
        elementwise_affine: bool = True,
        fuse_norm: bool = True,
    ) -> None:
        super().__init__()
        self.mode, self.hidden_size, self.num_heads = "chunk", hidden_size, num_heads
        self.expand_k, self.expand_v, self.num_kv_heads = expand_k, 1.0, num_heads
        self.feature_map_fn, self.clamp_min = None, clamp_min
        self.use_short_conv, self.conv_size, self.conv_bias = False, 4, False
        self.use_output_gate, self.gate_logit_normalizer = True, 16
        keys = int(hidden_size * expand_k)
        self.q_proj, self.k_proj = (nn.Linear(hidden_size, keys, bias=False) for _ in range(2))
        self.v_proj, self.g_proj, self.o_proj = (
            nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(3)
        )
        self.gk_proj = nn.Sequential(nn.Linear(hidden_size, 16, bias=False), nn.Linear(16, keys))
        self.fuse_norm_and_gate = fuse_norm
        norm = Norm(hidden_size // num_heads, elementwise_affine)
        if fuse_norm:
            self.g_norm_swish_gate = norm
        else:
            self.g_norm, self.gate_fn = norm, nn.SiLU()

    def attend(self, x: Tensor) -> Tensor:
        query, key, value, gate = (
            proj(x).unflatten(-1, (self.num_heads, -1))
            for proj in (self.q_proj, self.k_proj, self.v_proj, self.g_proj)
        )
        decay = F.logsigmoid(self.gk_proj(x)) / self.gate_logit_normalizer
        decay = torch.unflatten(decay, -1, [self.num_heads, -1])
        if self.clamp_min is not None:
            decay = decay.clamp(min=self.clamp_min)
        output, _ = naive("gla.naive_recurrent_gla")(query, key, value, decay)
        norm = self.g_norm_swish_gate if self.fuse_norm_and_gate else self.g_norm
        joined: Tensor = self.o_proj(norm(output.to(x.dtype), gate).flatten(2))
        return joined


class HadamardFeatureMap(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = self.layer1(x) * self.layer2(x)
        return product


class HedgehogFeatureMap(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = 2 * self.layer(x)
        return torch.cat([y, -y], dim=-1).softmax(-1)


class T2RFeatureMap(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x))


def elu(x: Tensor) -> Tensor:
    return F.elu(x) + 1


def dpfp(x: Tensor) -> Tensor:
    return x.relu() * x.roll(1, -1)


MAPS: dict[str, Any] = {
    "elementwise_product": HadamardFeatureMap,
    "hedgehog": HedgehogFeatureMap,
    "t2r": T2RFeatureMap,
    "elu": lambda width: elu,
    "relu": lambda width: nn.ReLU(),
    "identity": lambda width: nn.Identity(),
    "dpfp": lambda width: dpfp,
}


class LinearAttention(Layer):
    def __init__(
        self,
        hidden_size: int,
        num_heads: int = 8,
        num_kv_heads: int | None = None,
        feature_map: str = "elementwise_product",
        tie_feature_map_qk: bool = False,
        output_norm: str = "rmsnorm",
        norm_q: bool = False,
        norm_k: bool = False,
        do_feature_map_norm: bool = False,
    ) -> None:
        super().__init__()
        self.mode, self.hidden_size, self.num_heads = "chunk", hidden_size, num_heads
        self.num_kv_heads, self.do_feature_map_norm = num_kv_heads or num_heads, do_feature_map_norm
        self.width, groups = hidden_size // num_heads, num_heads // self.num_kv_heads
        self.feature_map_q = MAPS[feature_map](self.width)
        self.feature_map_k = (
            self.feature_map_q if tie_feature_map_qk else MAPS[feature_map](self.width)
        )
        self.q_proj, self.o_proj = (
            nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(2)
        )
        self.k_proj, self.v_proj = (
            nn.Linear(hidden_size, hidden_size // groups, bias=False) for _ in range(2)
        )
        self.norm = Norm(self.width) if output_norm == "rmsnorm" else nn.Identity()
        self.norm_q, self.norm_k = norm_q, norm_k

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
    ) -> tuple[Tensor, None, None]:
        """Theirs masks the values alone."""
        x = hidden_states
        query, key, value = (
            proj(x).unflatten(-1, (-1, self.width))
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if attention_mask is not None:
            value = value * attention_mask[:, :, None, None]
        groups = self.num_heads // self.num_kv_heads
        key, value = (y.repeat_interleave(groups, dim=2) for y in (key, value))
        query, key = self.feature_map_q(query), self.feature_map_k(key)
        if self.norm_q:
            query = query / (query.sum(-1, keepdim=True) + 1e-4)
        if self.norm_k:
            key = key / (key.sum(-1, keepdim=True) + 1e-4)
        rule = naive("linear_attn.naive_recurrent_linear_attn")
        output, _ = rule(query, key, value, normalize=self.do_feature_map_norm)
        output = self.norm(output.to(x.dtype))
        return self.o_proj(output.flatten(2)), None, None


GatedDeltaNet.__module__ = "fla.layers.gated_deltanet"
GatedLinearAttention.__module__ = "fla.layers.gla"
LinearAttention.__module__ = "fla.layers.linear_attn"
