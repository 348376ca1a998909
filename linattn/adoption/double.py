"""Runs a layer in float64 even where its code casts to float32."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


class InDouble(TorchFunctionMode):
    """Within it, every cast to a narrower type is one to float64, and so is every new tensor.

    What remains of a difference between two layers is then a convention and not a rounding.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in (Tensor.float, Tensor.half, Tensor.bfloat16):
            func = Tensor.double
        args, kwargs = tree_map(_wide_dtype, (tuple(args), dict(kwargs or {})))
        return tree_map(_wide_tensor, func(*args, **kwargs))


def _wide_dtype(x: Any) -> Any:
    return torch.float64 if isinstance(x, torch.dtype) and x in _NARROW else x


def _wide_tensor(x: Any) -> Any:
    return x.double() if isinstance(x, Tensor) and x.dtype in _NARROW else x
