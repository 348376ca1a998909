"""Moves weights and inputs by up to one rounding unit, to see what rounding costs."""

import copy
import zlib

import torch
from torch import Tensor, nn

PERTURBED_RUNS = 3
_NEARBY_UNITS = 4.0
Inputs = dict[str, Tensor]


def moved(module: nn.Module, dtype: torch.dtype, run: int) -> nn.Module:
    """A copy with every weight moved by up to one rounding unit of ``dtype``."""
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for name, tensor in copied.state_dict().items():
            # A module's own extra state is among them.
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                tensor.copy_(_move(tensor, dtype, f"{run}/weights/{name}"))
    return copied


def moved_inputs(inputs: Inputs, run: int) -> Inputs:
    """Inputs in float64, each number moved by up to one rounding unit of its dtype."""
    return {
        name: _move(t.double(), t.dtype, f"{run}/input/{name}") if t.is_floating_point() else t
        for name, t in inputs.items()
    }


def nearby_inputs(inputs: Inputs, run: int) -> Inputs:
    """Inputs a few rounding units away: the same problem with other luck."""
    return {
        name: _move(t.double(), t.dtype, f"{run}/nearby/{name}", units=_NEARBY_UNITS).to(t.dtype)
        if t.is_floating_point()
        else t
        for name, t in inputs.items()
    }


def _move(tensor: Tensor, dtype: torch.dtype, key: str, units: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    limits = torch.finfo(dtype)
    draw = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    # Below the smallest normal number the distance of neighbours no longer shrinks.
    unit = torch.clamp(tensor.abs(), min=limits.smallest_normal) * (units * limits.eps / 2)
    return torch.where(tensor == 0, tensor, tensor + (2 * draw - 1) * unit)
