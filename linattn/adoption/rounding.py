"""How far two outputs are apart, in roundings of the layer that they come from.

    error(y)  = max over rows of ||y - y64|| / ||y64||, and the same over the whole tensor
    rounding  = the larger of error(the layer in its own precision) and three times the error of
                float64 runs whose inputs and weights were moved by up to one rounding unit

The same yardstick that artifacts are judged with, on modules: see
linattn_runtime_checks.contract.verdict.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Trial
from linattn.adoption.double import InDouble

K = 4.0
CONCLUSIVE = 0.05
"""Where rounding alone moves an output by more, single precision proves nothing."""
SENSITIVITY_FACTOR = 3.0
_RUNS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Relative distance: of the worst row, and of the whole tensor."""

    row: float
    whole: float

    def largest(self, other: "Error") -> "Error":
        """The larger of each part."""
        return Error(row=max(self.row, other.row), whole=max(self.whole, other.whole))

    def times(self, factor: float) -> "Error":
        """Both parts scaled."""
        return Error(row=self.row * factor, whole=self.whole * factor)

    def roundings(self, rounding: "Error") -> float:
        """This error as a multiple of ``rounding``."""
        return max(_quotient(self.row, rounding.row), _quotient(self.whole, rounding.whole))


ZERO = Error(row=0.0, whole=0.0)


def _quotient(error: float, allowed: float) -> float:
    if error == 0:
        return 0.0
    return error / allowed if allowed > 0 else float("inf")


def error_of(
    outputs: Sequence[Tensor],
    expected: Sequence[Tensor],
    channels: int = -1,
    real: Tensor | None = None,
) -> Error:
    """The distance of ``outputs`` from ``expected``, over real tokens if ``real`` says which.

    Infinite where shapes differ, where there is NaN or infinity, and where a row of zeros is not.
    """
    found = ZERO
    nothing = Error(row=float("inf"), whole=float("inf"))
    if len(outputs) != len(expected):
        return nothing
    for mine, theirs in zip(outputs, expected, strict=True):
        if mine.shape != theirs.shape:
            return nothing
        wanted = theirs.double().movedim(channels, -1)
        distance = mine.double().movedim(channels, -1) - wanted
        if real is not None and wanted.shape[:2] == real.shape:
            wanted, distance = wanted[real], distance[real]
        if not (wanted.isfinite().all() and distance.isfinite().all()):
            return nothing
        sizes, distances = (torch.linalg.vector_norm(x, dim=-1) for x in (wanted, distance))
        if (distances[sizes == 0] > 0).any():
            return nothing
        if not (sizes > 0).any():
            continue
        row = (distances[sizes > 0] / sizes[sizes > 0]).max()
        whole = torch.linalg.vector_norm(distances) / torch.linalg.vector_norm(sizes)
        found = found.largest(Error(row=float(row), whole=float(whole)))
    return found


def copy_in(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy on the CPU in eval mode, without the hooks of the original."""
    twin = copy.deepcopy(layer).cpu().to(dtype).eval().requires_grad_(False)
    for part in twin.modules():
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()
    return twin


def run(layer: nn.Module, trial: Trial, dtype: torch.dtype) -> list[Tensor]:
    """The tensors that ``layer``, itself in ``dtype``, makes of the inputs in ``dtype``."""
    inputs = {name: _cast(value, dtype) for name, value in trial.inputs.items()}
    with torch.no_grad():
        if dtype != torch.float64:
            return _tensors(layer(**inputs))
        with InDouble():
            return _tensors(layer(**inputs))


class Yardstick:
    """What precision costs one layer.

    Args:
        original: the layer.
        dtype: the precision that it is judged in.
    """

    def __init__(self, original: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.exact = copy_in(original, torch.float64)
        self.own = copy_in(original, dtype)
        self.unit = torch.finfo(dtype).eps / 2
        self.generator = torch.Generator().manual_seed(0)
        self.moved = [copy_in(original, torch.float64) for _ in range(_RUNS)]
        for layer in self.moved:
            for x in (*layer.parameters(), *layer.buffers()):
                if x.is_floating_point():
                    x.data = _moved(x.data, self.unit, self.generator)

    def own_error(self, trial: Trial, expected: Sequence[Tensor]) -> Error:
        """Of the layer itself on one input, whose output in float64 is ``expected``."""
        return error_of(run(self.own, trial, self.dtype), expected, trial.channels)

    def rounding(self, trial: Trial, expected: Sequence[Tensor], own: Error) -> Error:
        """The same with what small changes do, where that is larger; ``own`` is the own error."""
        found = own
        for layer in self.moved:
            inputs = {
                name: _moved(value, self.unit, self.generator)
                for name, value in trial.inputs.items()
            }
            output = run(layer, replaced(trial, inputs), torch.float64)
            error = error_of(output, expected, trial.channels)
            found = found.largest(error.times(SENSITIVITY_FACTOR))
        return found


def replaced(trial: Trial, inputs: dict[str, Any]) -> Trial:
    """``trial`` with other inputs."""
    return Trial(
        name=trial.name,
        inputs=inputs,
        batched=trial.batched,
        tokens=trial.tokens,
        hidden=trial.hidden,
        mask=trial.mask if inputs.get(trial.mask) is not None else "",
        channels=trial.channels,
    )


def _moved(x: Any, unit: float, generator: torch.Generator) -> Any:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return x
    draw = torch.rand(x.shape, dtype=x.dtype, generator=generator)
    return x * (1 + unit * (2 * draw - 1))


def _cast(x: Any, dtype: torch.dtype) -> Any:
    if isinstance(x, tuple):
        return tuple(_cast(part, dtype) for part in x)
    if not isinstance(x, Tensor):
        return x
    # A copy: some layers write into what they are given.
    return x.to(dtype, copy=True) if x.is_floating_point() else x.clone()


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    return [x for x in output if isinstance(x, Tensor)]
