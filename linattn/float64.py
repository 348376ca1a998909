"""Runs modules in float64, whatever dtypes their code spells out, and moves numbers by a rounding.

A module with ``.float()`` or ``dtype=torch.float32`` in its forward stays in single precision, or
fails, when its weights are made float64; and a copy takes twice the memory of the weights. Here
every operator is given float64 instead, one at a time.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from linattn.torch_internals import TorchDispatchMode, tree_map
from linattn_runtime_checks.contract.verdict import move

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_BLOCK = 2**20


class InDouble(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it every operator computes in float64, and what is made anew is float64.

    Args:
        moved: ids of tensors that are moved by up to one rounding unit of their dtype, each time
            alike: weights.
    """

    def __init__(self, moved: Collection[int] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._moved = moved

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map(self._wide, (args, kwargs or {}))
        # What torch.zeros makes without a dtype is narrow, and may be written into.
        return tree_map(_widened, func(*args, **kwargs))

    def _wide(self, value: Any) -> Any:
        if isinstance(value, Tensor) and id(value) in self._moved and value.dtype in _NARROW:
            wide = value.double()
            generator = torch.Generator().manual_seed(wide.numel())
            size = min(wide.numel(), _BLOCK)
            draw = torch.rand(size, generator=generator, dtype=torch.float64)
            return moved(wide, draw, value.dtype)
        if isinstance(value, torch.dtype) and value in _NARROW:
            return torch.float64
        return _widened(value)


def _widened(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.dtype in _NARROW else value


def moved(wide: Tensor, draw: Tensor, dtype: torch.dtype, units: float = 1.0) -> Tensor:
    """``wide``, a float64 tensor of the caller's own, each number moved in place.

    Args:
        wide: on the CPU.
        draw: float64 from 0 to 1, as many numbers as ``wide`` has, or fewer, which then serve block
            after block.
        dtype: whose rounding units they are moved by.
        units: how many of them, at most.
    """
    limits = torch.finfo(dtype)
    flat, draws = wide.reshape(-1), draw.reshape(-1)
    size = max(draws.numel(), 1)
    for start in range(0, flat.numel(), size):
        part = flat[start : start + size]
        move(part.numpy(), draws[: part.numel()].numpy(), limits.eps, limits.smallest_normal, units)
    return flat.view(wide.shape)
