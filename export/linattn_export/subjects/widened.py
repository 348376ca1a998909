"""A module that runs another one in float64, without a copy of its weights."""

from typing import Any

from torch import Tensor, nn

from linattn.float64 import InDouble


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
        with InDouble(weights if self.moved else ()):
            return self.entry(*inputs)


def weights_of(module: nn.Module) -> list[Tensor]:
    """Parameters and buffers that a state dict holds; what else it holds is left out."""
    held = module.state_dict(keep_vars=True).values()
    return [value for value in held if isinstance(value, Tensor)]
