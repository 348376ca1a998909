"""Runs a module whose sums are taken one number after the other, as most runtimes take them.

PyTorch on a CPU adds in blocks of blocks, and accumulates a cumulative sum in float64. ONNX Runtime
adds in order. Both are single precision; over thousands of tokens the second loses ten times as
much, and an export of a mean over tokens is not wrong for it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from linattn.torch_internals import TorchDispatchMode
from linattn_export.live_module.switches import under

_aten = torch.ops.aten


class PlainSums(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it sums, means and cumulative sums of single precision add in order."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        plain = args and isinstance(args[0], Tensor) and args[0].dtype == torch.float32
        if plain and kwargs.get("dtype") in (None, torch.float32):
            x, more = args[0], args[1:]
            if func is _aten.cumsum.default:
                return _cumulative(x, more[0])
            if func in (_aten.sum.dim_IntList, _aten.mean.dim, _aten.sum.default):
                dims = more[0] if more and more[0] else range(x.dim())
                total = _sum(x, dims, keepdim=bool(more[1:] and more[1]))
                return total / (x.numel() / total.numel()) if func is _aten.mean.dim else total
        return func(*args, **kwargs)


def summed_in_order(eager: Callable[[Any], Any], inputs: Any) -> Any | None:
    """What ``eager`` gives with plain sums; None where it cannot be run under a mode."""
    return under(PlainSums(), lambda: eager(inputs))  # type: ignore[no-untyped-call]


def _sum(x: Tensor, dims: Sequence[int], *, keepdim: bool) -> Tensor:
    for dim in sorted({dim % x.dim() for dim in dims}, reverse=True):
        parts = x.unbind(dim)
        total = torch.zeros_like(parts[0]) if parts else x.sum(dim)
        for part in parts:
            total += part
        x = total.unsqueeze(dim) if keepdim else total
    return x


def _cumulative(x: Tensor, dim: int) -> Tensor:
    total = torch.zeros_like(x.select(dim, 0)) if x.size(dim) else x
    sums = []
    for part in x.unbind(dim):
        total = total + part
        sums.append(total)
    return torch.stack(sums, dim) if sums else x
