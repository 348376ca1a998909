"""Runs a module in float64 whatever dtypes its code spells out, without a copy of its weights.

A module with ``.float()`` or ``dtype=torch.float32`` in its forward stays in single precision, or
fails, when its weights are made float64; and the copy takes twice the memory of the weights. Here
every operator is given float64 instead, one at a time.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_BLOCK = 2**20


class Widened(nn.Module):
    """``forward(*inputs)`` of ``entry``, with all floating-point arithmetic in float64.

    With ``moved`` every weight is moved by up to one rounding unit of its dtype, each time alike.
    """

    def __init__(self, entry: nn.Module, *, moved: bool = False) -> None:
        super().__init__()
        self.entry = entry
        self.moved = moved

    def forward(self, *inputs: Tensor) -> Any:
        """Return what ``entry`` does, in float64."""
        weights = {id(weight) for weight in weights_of(self.entry)}
        with _Double(weights if self.moved else set()):
            return self.entry(*inputs)


def weights_of(module: nn.Module) -> list[Tensor]:
    """Parameters and buffers that a state dict holds; what else it holds is left out."""
    held = module.state_dict(keep_vars=True).values()
    return [value for value in held if isinstance(value, Tensor)]


class _Double(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces narrow tensors and narrow dtypes in what every operator is given."""

    def __init__(self, moved: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._moved = moved

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map(self._wide, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _wide(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype in _NARROW:
            wide = value.double()
            return _moved(wide, value.dtype) if id(value) in self._moved else wide
        if isinstance(value, torch.dtype) and value in _NARROW:
            return torch.float64
        return value


def _moved(wide: Tensor, dtype: torch.dtype) -> Tensor:
    """``wide``, a tensor of its own, with each number moved; block by block, in place."""
    generator = torch.Generator().manual_seed(wide.numel())
    unit = torch.finfo(dtype).eps / 2
    draw = torch.rand(min(wide.numel(), _BLOCK), generator=generator, dtype=torch.float64)
    factors = 1 + unit * (2 * draw - 1)
    flat = wide.view(-1) if wide.is_contiguous() else wide.contiguous().view(-1)
    for start in range(0, flat.numel(), _BLOCK):
        part = flat[start : start + _BLOCK]
        part.mul_(factors[: part.numel()])
    return flat.view(wide.shape)
