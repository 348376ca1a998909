"""Moves weights and inputs by up to one rounding unit, to see what rounding costs."""

import copy
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from linattn import float64
from linattn_export.inputs.domain import inside
from linattn_models import InputSpec

PERTURBED_RUNS = 3
NEARBY_UNITS = 4.0
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


def moved_inputs(inputs: Inputs, run: int, specs: Sequence[InputSpec] = ()) -> Inputs:
    """Inputs in float64, each number moved by up to one rounding unit of its dtype.

    None of them leaves what ``specs`` say that the input may hold.
    """
    moves = {
        name: _move(t.double(), t.dtype, f"{run}/input/{name}") if t.is_floating_point() else t
        for name, t in inputs.items()
    }
    return moves | {
        spec.name: inside(moves[spec.name], spec, torch.float64)
        for spec in specs
        if spec.domain is not None
    }


def nearby_inputs(
    inputs: Inputs, run: int, specs: Sequence[InputSpec] = (), units: float = NEARBY_UNITS
) -> Inputs:
    """Inputs a few rounding units away, in their own dtype: the same problem with other luck."""
    known = {spec.name: spec for spec in specs}
    found = {}
    for name, tensor in inputs.items():
        if tensor.is_floating_point():
            moves = _move(tensor.double(), tensor.dtype, f"{run}/nearby/{name}", units=units)
            if name in known:
                moves = inside(moves, known[name], tensor.dtype)
            found[name] = moves.to(tensor.dtype)
        else:
            found[name] = tensor
    return found


def _move(tensor: Tensor, dtype: torch.dtype, key: str, units: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    draw = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    wide = tensor.detach().to("cpu", torch.float64, copy=True)
    return float64.moved(wide, draw, dtype, units)
