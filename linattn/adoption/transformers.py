"""``transformers``: the recurrent layers of its language models."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial, Unsupported, require
from linattn.adoption.recurrent import LightningStandIn, RecurrentStandIn, ours
from linattn.adoption.trials import token_trials
from linattn.adoption.weights import load, plain


def _delta_rule(original: Any, weights: Mapping[str, Tensor]) -> nn.Module:
    """A Gated DeltaNet whose projections are ``weights``."""
    require("hidden_act", original.activation, "silu", "swish")
    layer = ours(
        "gated_delta",
        original.hidden_size,
        original.num_v_heads,
        key_heads=original.num_k_heads,
        head_width=original.head_k_dim,
        value_width=original.head_v_dim,
        conv_size=original.conv_kernel_size,
        eps=_norm(original).variance_epsilon,
        neg_eigval=bool(getattr(original, "allow_neg_eigval", False)),
    )
    shared = {
        "conv_weight": original.conv1d.weight,
        "A_log": original.A_log,
        "dt_bias": original.dt_bias,
        "norm_weight": _norm(original).weight,
    }
    return RecurrentStandIn(load(layer, {**shared, **weights}), original.layer_idx)


def _norm(original: Any) -> Any:
    return original.norm if hasattr(original, "norm") else original.o_norm


def qwen3_next(original: Any) -> nn.Module:
    """One block of rows for each key head: its query, its key, and v, z of its value heads."""
    packed, gates, out = plain(original, "in_proj_qkvz", "in_proj_ba", "out_proj", bias=False)
    heads = original.num_k_heads
    shared = original.num_v_heads // heads
    keys, values = original.head_k_dim, shared * original.head_v_dim
    sizes = [keys, keys, values, values]
    rows = torch.split(torch.unflatten(packed.weight, 0, [heads, sum(sizes)]), sizes, dim=1)
    query, key, value, gate = (part.flatten(0, 1) for part in rows)
    rows = torch.split(torch.unflatten(gates.weight, 0, [heads, 2 * shared]), shared, dim=1)
    beta, decay = (part.flatten(0, 1) for part in rows)
    return _delta_rule(
        original,
        {
            "q_proj.weight": query,
            "k_proj.weight": key,
            "v_proj.weight": value,
            "g_proj.weight": gate,
            "b_proj.weight": beta,
            "a_proj.weight": decay,
            "o_proj.weight": out.weight,
        },
    )


def qwen3_5(original: Any) -> nn.Module:
    """Query, key and value in one projection, the others each in its own."""
    names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
    packed, gate, beta, decay, out = plain(original, *names, bias=False)
    keys, values = original.key_dim, original.value_dim
    query, key, value = torch.split(packed.weight, [keys, keys, values])
    return _delta_rule(
        original,
        {
            "q_proj.weight": query,
            "k_proj.weight": key,
            "v_proj.weight": value,
            "g_proj.weight": gate.weight,
            "b_proj.weight": beta.weight,
            "a_proj.weight": decay.weight,
            "o_proj.weight": out.weight,
        },
    )


def olmo_hybrid(original: Any) -> nn.Module:
    """Every projection on its own."""
    names = [f"{letter}_proj" for letter in "qkvgbao"]
    found = zip(names, plain(original, *names, bias=False), strict=True)
    return _delta_rule(original, {f"{name}.weight": part.weight for name, part in found})


def kimi_linear(original: Any) -> nn.Module:
    """Kimi Delta Attention; ours has a bias where the published model has none."""
    require("hidden_act", original.activation, "silu", "swish")
    layer = ours(
        "kda",
        original.hidden_size,
        original.num_heads,
        head_width=original.head_dim,
        conv_size=original.conv_kernel_size,
        eps=original.o_norm.variance_epsilon,
    )
    same = [f"{letter}_proj" for letter in "qkvbo"]
    found = zip(same, plain(original, *same, bias=False), strict=True)
    gates = ("forget_gate.f_a_proj", "forget_gate.f_b_proj", "g_a_proj", "g_b_proj")
    inner, outer, down, up = plain(original, *gates, bias=False)
    weights = {f"{name}.weight": part.weight for name, part in found} | {
        "f_proj.0.weight": inner.weight,
        "f_proj.1.weight": outer.weight,
        "g_proj.0.weight": down.weight,
        "g_proj.1.weight": up.weight,
        "g_proj.1.bias": up.weight.detach().new_zeros(up.out_features),
        "conv_weight": original.conv1d.weight,
        "A_log": original.forget_gate.A_log.flatten(),
        "dt_bias": original.forget_gate.dt_bias,
        "norm_weight": original.o_norm.weight,
    }
    return RecurrentStandIn(load(layer, weights), original.layer_idx)


def mamba2(original: Any) -> nn.Module:
    """With one group of keys and queries, no bias in the projections and one in the convolution."""
    require("hidden_act", original.activation, "silu", "swish")
    require("n_groups", original.n_groups, 1)
    require("use_conv_bias", original.use_conv_bias, True)
    require("time_step_limit", tuple(original.time_step_limit), (0.0, float("inf")))
    expand, rest = divmod(original.intermediate_size, original.hidden_size)
    if rest or original.num_heads * original.head_dim != original.intermediate_size:
        raise Unsupported(
            f"expand * hidden_size = {original.intermediate_size} must be a multiple of "
            f"hidden_size={original.hidden_size} and num_heads={original.num_heads} times "
            f"head_dim={original.head_dim}"
        )
    layer = ours(
        "mamba2",
        original.hidden_size,
        original.num_heads,
        state_size=original.ssm_state_size,
        expand=expand,
        conv_size=original.conv_kernel_size,
        eps=original.norm.variance_epsilon,
    )
    into, out = plain(original, "in_proj", "out_proj", bias=False)
    weights = {
        "in_proj.weight": into.weight,
        "out_proj.weight": out.weight,
        "conv_weight": original.conv1d.weight,
        "conv_bias": original.conv1d.bias,
        "A_log": original.A_log,
        "dt_bias": original.dt_bias,
        "D": original.D,
        "norm_weight": original.norm.weight,
    }
    return RecurrentStandIn(load(layer, weights), original.layer_idx, values_first=True)


def minimax(original: Any) -> nn.Module:
    """Lightning attention with the slopes of its place in the model."""
    if type(original.act_fn).__name__ not in ("SiLU", "SiLUActivation"):
        raise Unsupported(
            f"hidden_act={type(original.act_fn).__name__} is not supported; supported: 'silu'"
        )
    packed, gate, out = plain(original, "qkv_proj", "output_gate", "out_proj", bias=False)
    layer = ours(
        "lightning",
        packed.in_features,
        original.num_attention_heads,
        layer=original.layer_idx,
        layers=original.num_hidden_layers,
        head_width=original.head_dim,
        eps=original.norm.variance_epsilon,
    )
    weights = {
        "qkv_proj.weight": packed.weight,
        "output_gate.weight": gate.weight,
        "out_proj.weight": out.weight,
        "norm_weight": original.norm.weight,
    }
    return LightningStandIn(load(layer, weights), original.layer_idx)


def trials(original: Any) -> Sequence[Trial]:
    """Padding on the left, which is what decoders do; on the right the padding alone differs."""
    width, fixed = getattr(original, "hidden_size", 0), {}
    if not width:  # Lightning attention, whose arguments have no defaults
        width = original.qkv_proj.in_features
        fixed = {"position_embeddings": None, "attention_mask": None}
    return token_trials(
        width, hidden="hidden_states", mask="attention_mask", left=True, fixed=fixed
    )


def _peer(folder: str, name: str, method: str, convert: Callable[[Any], nn.Module]) -> Peer:
    return Peer(
        package="transformers",
        layer=f"transformers.models.{folder}.modeling_{folder}.{name}",
        versions="5.24.0",
        method=method,
        convert=convert,
        trials=trials,
    )


PEERS = (
    _peer("qwen3_next", "Qwen3NextGatedDeltaNet", "gated_delta", qwen3_next),
    _peer("qwen3_5", "Qwen3_5GatedDeltaNet", "gated_delta", qwen3_5),
    _peer("qwen3_5_moe", "Qwen3_5MoeGatedDeltaNet", "gated_delta", qwen3_5),
    _peer("olmo_hybrid", "OlmoHybridGatedDeltaNet", "gated_delta", olmo_hybrid),
    _peer("kimi_linear", "KimiLinearDeltaAttention", "kda", kimi_linear),
    _peer("mamba2", "Mamba2Mixer", "mamba2", mamba2),
    _peer("minimax", "MiniMaxLightningAttention", "lightning", minimax),
)
