"""Calls of layers of tokens ``[B, N, M]``: several lengths, sizes of numbers, and padding."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from linattn.adoption.contract import Trial

LENGTHS = (1, 7, 64, 130)


def tokens(length: int, width: int, scale: float = 1.0, batch: int = 2) -> Tensor:
    """Hidden states ``[B, N, M]`` in float64 that float32 holds as they are."""
    generator = torch.Generator().manual_seed(length)
    return (scale * torch.randn(batch, length, width, generator=generator)).double()


def padding(length: int, *, left: bool = False, batch: int = 2) -> Tensor:
    """Bool ``[B, N]``: the last sequence is a third padding."""
    place = torch.arange(length)
    if left:
        place = length - 1 - place
    real = [length] * (batch - 1) + [length - length // 3]
    return place < torch.tensor(real).unsqueeze(1)


def token_trials(
    width: int,
    *,
    hidden: str,
    mask: str = "",
    left: bool = False,
    longest: int | None = None,
    more: Callable[[int], dict[str, Any]] | None = None,
    shared: Sequence[str] = (),
    fixed: Mapping[str, Any] = MappingProxyType({}),
) -> list[Trial]:
    """At each length: plain, large numbers, and padded where there is a mask.

    Args:
        width: M.
        hidden: the argument that takes hidden states.
        mask: the one that takes the padding mask, if there is one.
        left: the padding is on the left.
        longest: the longest sequence that the layer takes.
        more: further arguments at a length.
        shared: those of them that are ``[1, N, ..]``, the same for all sequences.
        fixed: arguments of every call.
    """
    lengths = [length for length in LENGTHS if longest is None or length < longest]
    if longest is not None:
        lengths.append(min(longest, 512))
    found = []
    for length in lengths:
        extra = more(length) if more is not None else {}
        own = tuple(name for name in extra if name not in shared)
        for scale in (1.0, 8.0) if length == lengths[-1] else (1.0,):
            found.append(
                Trial(
                    name=f"{length} tokens" + (f", inputs times {scale:g}" if scale != 1 else ""),
                    inputs={**fixed, hidden: tokens(length, width, scale), **extra},
                    batched=(hidden, *own),
                    tokens=(hidden, *extra),
                    hidden=hidden,
                )
            )
        if mask and length > 2:
            found.append(
                Trial(
                    name=f"{length} tokens, a third of one sequence padding",
                    inputs={
                        **fixed,
                        hidden: tokens(length, width),
                        mask: padding(length, left=left),
                        **extra,
                    },
                    batched=(hidden, mask, *own),
                    tokens=(hidden, mask, *extra),
                    hidden=hidden,
                    mask=mask,
                )
            )
    return found
