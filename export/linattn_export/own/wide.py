"""Runs a module in float64 whatever dtypes its code spells out.

A module with ``.float()`` or ``dtype=torch.float32`` in its forward stays in single precision, or
fails, when its weights are made float64. Here every operator is given float64 instead.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


class Widened(nn.Module):
    """``forward(*inputs)`` of ``entry``, with all floating-point arithmetic in float64."""

    def __init__(self, entry: nn.Module) -> None:
        super().__init__()
        self.entry = entry

    def forward(self, *inputs: Tensor) -> Any:
        """Return what ``entry`` does, in float64."""
        with _Double():  # type: ignore[no-untyped-call]
            return self.entry(*inputs)


class _Double(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces narrow tensors and narrow dtypes in what every operator is given."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map(_wide, (args, kwargs or {}))
        return func(*args, **kwargs)


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in _NARROW:
        return value.double()
    if isinstance(value, torch.dtype) and value in _NARROW:
        return torch.float64
    return value
