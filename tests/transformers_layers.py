"""Layers of transformers beside ours with the same weights, and what runs them in float64."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linattn.adoption import PEERS
from linattn.adoption.contract import layer_name

MODEL, HEADS, WIDTH = 32, 4, 8
CHUNK = 64
HIDDEN = ("fla", "causal_conv1d", "mamba_ssm", "torchvision")
"""Packages whose GPU kernels transformers would take in place of its PyTorch; and one that does not
load where its compiled operators are not for the torch that is installed, and is not needed."""


@contextmanager
def in_double() -> Iterator[None]:
    """Casts to float32, which all of them have, become casts to float64.

    What remains of a difference is then a convention and not a rounding.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("float", "float32"):
            patch.setattr(torch, name, torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def module(name: str, part: str) -> Any:
    """``transformers.models.NAME.PART_NAME``, with its functions in PyTorch."""
    with pytest.MonkeyPatch.context() as patch:
        for package in HIDDEN:
            patch.setitem(sys.modules, package, None)
        return importlib.import_module(f"transformers.models.{name}.{part}_{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """``theirs(hidden_states, mask, cache)``; ``states(cache)``: theirs laid out as ours."""

    ours: Any
    theirs: Callable[[Tensor, Tensor | None, Any], Tensor]
    cache: Callable[[], Any]
    states: Callable[[Any], list[Tensor]]


def drawn(kind: Callable[[Any, int], nn.Module], config: Any, place: int = 0) -> Any:
    """A layer of theirs in float64, with weights that are not those of a start."""
    generator = torch.Generator().manual_seed(0)
    with in_double():
        layer = kind(config, place).double().eval().requires_grad_(False)
    for parameter in layer.parameters():
        noise = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        if parameter.dim() > 1 and parameter.shape[0] > 1:
            parameter.copy_(noise / parameter[0].numel() ** 0.5)
        else:
            parameter.copy_(1 + 0.2 * noise if (parameter == 1).all() else 0.5 * noise)
    return layer


def ours(theirs: nn.Module) -> Any:
    """What adopt() makes of it."""
    stand_in: Any = PEERS[layer_name(theirs)].convert(theirs)
    return stand_in.layer.double().eval().requires_grad_(False)


def _cached(config: Any) -> Any:
    return module("qwen3_next", "modeling").DynamicCache(config=config)


def _conv_state(cache: Any, taps: int) -> Tensor:
    """They keep as many tokens as there are taps, we one less."""
    kept: Tensor = cache.get_conv_state(0, state_idx=0)
    return kept[..., kept.shape[-1] - taps + 1 :]


def gated_delta(key_heads: int) -> Pair:
    config = module("qwen3_next", "configuration").Qwen3NextConfig(
        hidden_size=MODEL,
        num_hidden_layers=1,
        linear_num_key_heads=key_heads,
        linear_num_value_heads=HEADS,
        linear_key_head_dim=WIDTH,
        linear_value_head_dim=WIDTH,
        layer_types=["linear_attention"],
    )
    theirs = drawn(module("qwen3_next", "modeling").Qwen3NextGatedDeltaNet, config)
    return Pair(
        ours=ours(theirs),
        theirs=lambda x, mask, cache: theirs(x, cache=cache, attention_mask=mask),
        cache=lambda: _cached(config),
        states=lambda cache: [cache.get_recurrent_state(0, state_idx=0), _conv_state(cache, 4)],
    )


def kda() -> Pair:
    config = module("kimi_linear", "configuration").KimiLinearConfig(
        hidden_size=MODEL,
        num_hidden_layers=1,
        linear_num_heads=HEADS,
        linear_head_dim=WIDTH,
        layer_types=["linear_attention"],
    )
    theirs = drawn(module("kimi_linear", "modeling").KimiLinearDeltaAttention, config)
    return Pair(
        ours=ours(theirs),
        theirs=lambda x, mask, cache: theirs(x, cache=cache, attention_mask=mask),
        cache=lambda: _cached(config),
        states=lambda cache: [cache.get_recurrent_state(0, state_idx=0), _conv_state(cache, 4)],
    )


def mamba2() -> Pair:
    config = module("mamba2", "configuration").Mamba2Config(
        hidden_size=MODEL,
        num_hidden_layers=1,
        num_heads=HEADS,
        head_dim=2 * MODEL // HEADS,
        state_size=6,
        n_groups=1,
        chunk_size=CHUNK,
    )
    theirs = drawn(module("mamba2", "modeling").Mamba2Mixer, config)
    return Pair(
        ours=ours(theirs),
        theirs=lambda x, mask, cache: theirs(x, cache=cache, attention_mask=mask),
        cache=lambda: _cached(config),
        states=lambda cache: [
            cache.get_recurrent_state(0, state_idx=0).transpose(-1, -2),  # values first
            _conv_state(cache, 4),
        ],
    )


def lightning(place: int, layers: int) -> Pair:
    config = module("minimax", "configuration").MiniMaxConfig(
        hidden_size=MODEL,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        block_size=CHUNK,
        layer_types=["linear_attention"] * layers,
    )
    minimax = module("minimax", "modeling")
    theirs = drawn(minimax.MiniMaxLightningAttention, config, place)
    return Pair(
        ours=ours(theirs),
        theirs=lambda x, mask, cache: theirs(x, None, mask, cache=cache)[0],
        cache=minimax.MiniMaxCache,
        states=lambda cache: [cache.get_linear_cache(place)],
    )


PAIRS: dict[str, Callable[[], Pair]] = {
    "gated_delta": lambda: gated_delta(HEADS),
    "gated_delta, 2 key heads": lambda: gated_delta(2),
    "gated_delta, 1 key head": lambda: gated_delta(1),
    "kda": kda,
    "mamba2": mamba2,
    "lightning, layer 0 of 80": lambda: lightning(0, 80),
    "lightning, layer 5 of 8": lambda: lightning(5, 8),
}
