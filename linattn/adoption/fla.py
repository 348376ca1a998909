"""``flash-linear-attention``: layers whose package needs a GPU to import, from their weights.

    from linattn.adoption.fla import from_state_dict
    layer = from_state_dict("GatedDeltaNet", {"hidden_size": 1024, "num_heads": 4}, weights)

Options and names of weights are those of the package's layers. Where it does import, adopt() finds
its layers like those of any other, and keeps them if they do not run on the CPU.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial, Unsupported, require
from linattn.adoption.fla_linear import LinearLayer
from linattn.adoption.fla_options import GatedDeltaNet, GatedLinearAttention, LinearAttention
from linattn.adoption.recurrent import CalledWithMore, ours
from linattn.adoption.trials import token_trials
from linattn.adoption.weights import load
from linattn.contract import unknown


class FlaStandIn(CalledWithMore):
    """Called as their layers are, and returns three things as they do."""

    arguments = ("hidden_states", "attention_mask", "past_key_values")

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Optional[Tensor] = None,
        past_key_values: Optional[Tensor] = None,
    ) -> tuple[Tensor, Optional[Tensor], Optional[Tensor]]:
        """``[B, N, M]`` of hidden states ``[B, N, M]``, None and None.

        Args:
            hidden_states: see there.
            attention_mask: ``[B, N]``, not 0 for a real token.
            past_key_values: must be None; :meth:`RecurrentLayer.advance` of ``layer`` goes on.
        """
        if past_key_values is not None:
            raise ValueError("past_key_values must be None; use layer.advance to go on")
        mask = attention_mask != 0 if attention_mask is not None else None
        output: Tensor = self.layer(hidden_states, mask)
        return output, None, None


def _gated_delta_net(options: GatedDeltaNet, state: Mapping[str, Tensor]) -> nn.Module:
    require("use_gate", options.use_gate, True)
    require("use_short_conv", options.use_short_conv, True)
    require("conv_bias", options.conv_bias, False)
    layer = ours(
        "gated_delta",
        options.hidden_size,
        options.num_v_heads or options.num_heads,
        key_heads=options.num_heads,
        head_width=options.head_dim,
        value_width=int(options.head_dim * options.expand_v),
        neg_eigval=options.allow_neg_eigval,
        conv_size=options.conv_size,
        eps=options.norm_eps,
    )
    weights = dict(state)
    taps = [_taken(weights, f"{letter}_conv1d.weight") for letter in "qkv"]
    weights["conv_weight"] = torch.cat(taps)
    weights["norm_weight"] = _taken(weights, "o_norm.weight")
    return load(layer, weights)


def _gated_linear_attention(
    options: GatedLinearAttention, state: Mapping[str, Tensor]
) -> nn.Module:
    require("num_kv_heads", options.num_kv_heads or options.num_heads, options.num_heads)
    require("feature_map", options.feature_map, None)
    require("use_short_conv", options.use_short_conv, False)
    require("use_output_gate", options.use_output_gate, True)
    require("gate_fn", options.gate_fn, "swish", "silu")
    require("clamp_min", options.clamp_min, None)
    require("expand_v", options.expand_v, 1.0)
    layer = ours(
        "gla",
        options.hidden_size,
        options.num_heads,
        expand_key=options.expand_k,
        gate_rank=options.gate_low_rank_dim,
        gate_normalizer=options.gate_logit_normalizer,
        eps=options.norm_eps,
    )
    fused = options.fuse_norm and options.gate_fn == "swish"
    return load(layer, _normed(state, "g_norm_swish_gate" if fused else "g_norm", options))


def _linear_attention(options: LinearAttention, state: Mapping[str, Tensor]) -> nn.Module:
    require("output_norm", options.output_norm, "rmsnorm", "identity")
    layer = LinearLayer(options)
    weights = dict(state)
    if options.tie_feature_map_qk:
        weights = {n: w for n, w in weights.items() if not n.startswith("feature_map_k.")}
    if options.output_norm == "rmsnorm":
        weights = _normed(weights, "norm", options)
    return load(layer, weights)


def _normed(state: Mapping[str, Tensor], norm: str, options: Any) -> dict[str, Tensor]:
    """Ours always has a weight in the norm; where theirs has none, ones that are not trained."""
    weights = dict(state)
    if options.elementwise_affine:
        weights["norm_weight"] = _taken(weights, f"{norm}.weight")
        return weights
    out = weights["o_proj.weight"]
    return weights | {"norm_weight": out.detach().new_ones(out.shape[1] // options.num_heads)}


def _taken(weights: dict[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise Unsupported(f"there is no weight {name!r}; given were {sorted(weights)}")
    return weights.pop(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    module: str
    options: type
    build: Callable[[Any, Mapping[str, Tensor]], nn.Module]
    method: str


KINDS = {
    "GatedDeltaNet": _Kind(
        module="gated_deltanet",
        options=GatedDeltaNet,
        build=_gated_delta_net,
        method="gated_delta",
    ),
    "GatedLinearAttention": _Kind(
        module="gla", options=GatedLinearAttention, build=_gated_linear_attention, method="gla"
    ),
    "LinearAttention": _Kind(
        module="linear_attn",
        options=LinearAttention,
        build=_linear_attention,
        method="linear recurrence",
    ),
}


def from_state_dict(
    layer: str, config: Mapping[str, object], state: Mapping[str, Tensor]
) -> nn.Module:
    """Our layer with the weights of one of flash-linear-attention, called as that one is.

    Args:
        layer: its class: a name in :data:`KINDS`.
        config: the arguments it was built with; the others have the package's defaults.
        state: its state dict.

    Raises:
        Unsupported: an unknown class or option, an option that ours does not have, or weights that
            do not fit.
    """
    if layer not in KINDS:
        raise Unsupported(unknown("layer of flash-linear-attention", layer, KINDS))
    kind = KINDS[layer]
    names = [f.name for f in dataclasses.fields(kind.options)]
    for name in config:
        if name not in names:
            raise Unsupported(unknown(f"option of {layer}", name, names))
    return FlaStandIn(kind.build(kind.options(**config), state))


def _convert(original: Any) -> nn.Module:
    """From a layer of theirs, whose options are read off."""
    name = type(original).__name__
    fields = dataclasses.fields(KINDS[name].options)
    config = {f.name: getattr(original, f.name) for f in fields if hasattr(original, f.name)}
    norms = ("o_norm", "g_norm_swish_gate", "g_norm", "norm")
    norm: Any = next((getattr(original, n) for n in norms if hasattr(original, n)), None)
    if hasattr(norm, "eps"):
        config["norm_eps"] = norm.eps
    if name != "GatedDeltaNet":
        config["elementwise_affine"] = getattr(norm, "weight", None) is not None
    if name == "GatedLinearAttention":
        config |= _read_gla(original)
    if name == "LinearAttention":
        config |= _read_linear(original)
    return from_state_dict(name, config, original.state_dict(keep_vars=True))


def _read_gla(original: Any) -> dict[str, Any]:
    gate = getattr(original, "gate_fn", None)
    gate = "swish" if gate is None or type(gate).__name__.startswith("SiLU") else repr(gate)
    return {
        "fuse_norm": original.fuse_norm_and_gate,
        "gate_fn": gate,
        "gate_low_rank_dim": original.gk_proj[0].out_features,
        "feature_map": None if original.feature_map_fn is None else repr(original.feature_map_fn),
    }


def _read_linear(original: Any) -> dict[str, Any]:
    theirs = {
        "HadamardFeatureMap": "elementwise_product",
        "HedgehogFeatureMap": "hedgehog",
        "T2RFeatureMap": "t2r",
        "ReLU": "relu",
        "Identity": "identity",
    }
    found = original.feature_map_q
    kind = getattr(found, "__name__", type(found).__name__)  # "elu" is a function
    tied = isinstance(found, nn.Module) and found is original.feature_map_k
    return {
        "feature_map": theirs.get(kind, kind),
        "tie_feature_map_qk": tied and bool(list(found.parameters())),
        "output_norm": "identity" if type(original.norm) is nn.Identity else "rmsnorm",
    }


def _trials(original: Any) -> Sequence[Trial]:
    return token_trials(
        original.hidden_size, hidden="hidden_states", mask="attention_mask", left=True
    )


PEERS = tuple(
    Peer(
        package="flash-linear-attention",
        layer=f"fla.layers.{kind.module}.{name}",
        versions="0.6.0",
        method=kind.method,
        convert=_convert,
        trials=_trials,
        hint="from_state_dict() of linattn.adoption.fla builds ours from its weights",
    )
    for name, kind in KINDS.items()
)
