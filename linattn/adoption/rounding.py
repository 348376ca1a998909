"""How far two outputs are apart, in roundings of the layer that they come from.

    error(y)  = max over rows of ||y - y64|| / ||y64||, and the same over the whole tensor
    rounding  = the larger of error(the layer in its own precision) and three times the error of
                float64 runs whose inputs and weights were moved by up to one rounding unit

The yardstick that artifacts are judged with, on modules: linattn_runtime_checks.contract.verdict.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from linattn import float64
from linattn.adoption.contract import Trial
from linattn.float64 import InDouble
from linattn.torch_internals import hooks_of
from linattn_runtime_checks.contract import verdict
from linattn_runtime_checks.contract.verdict import SENSITIVITY_FACTOR, ZERO, Error

INFINITE = Error(row=float("inf"), whole=float("inf"))
_RUNS = 2


def error_of(
    outputs: Sequence[Tensor],
    expected: Sequence[Tensor],
    channels: int = -1,
    real: Tensor | None = None,
) -> Error:
    """The distance of ``outputs`` from ``expected``, over real tokens if ``real`` says which.

    Infinite where shapes differ, where there is NaN or infinity, and where a row of zeros is not.
    """
    if len(outputs) != len(expected):
        return INFINITE
    found = ZERO
    for mine, theirs in zip(outputs, expected, strict=True):
        if mine.shape != theirs.shape:
            return INFINITE
        actual, wanted = (x.double().movedim(channels, -1) for x in (mine, theirs))
        if real is not None and wanted.shape[:2] == real.shape:
            actual, wanted = actual[real], wanted[real]
        if not (wanted.isfinite().all() and actual.isfinite().all()):
            return INFINITE
        if not wanted.numel():
            continue
        if actual[(wanted == 0).all(dim=-1)].any():
            return INFINITE
        found = found.largest(verdict.error_of(actual.numpy(), wanted.numpy()))
    return found


def copy_in(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy on the CPU in eval mode, without the hooks of the original."""
    twin = copy.deepcopy(layer).cpu().to(dtype).eval().requires_grad_(False)
    for part in twin.modules():
        for hooks in hooks_of(part):
            hooks.clear()
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
        self.generator = torch.Generator().manual_seed(0)
        self.moved = [copy_in(original, torch.float64) for _ in range(_RUNS)]
        for layer in self.moved:
            for x in (*layer.parameters(), *layer.buffers()):
                if x.is_floating_point():
                    x.data = _moved(x.data, dtype, self.generator)

    def own_error(self, trial: Trial, expected: Sequence[Tensor]) -> Error:
        """Of the layer itself on one input, whose output in float64 is ``expected``."""
        return error_of(run(self.own, trial, self.dtype), expected, trial.channels)

    def rounding(self, trial: Trial, expected: Sequence[Tensor], own: Error) -> Error:
        """The same with what small changes do, where that is larger; ``own`` is the own error."""
        found = own
        for layer in self.moved:
            inputs = {
                name: _moved(value, self.dtype, self.generator)
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


def _moved(x: Any, dtype: torch.dtype, generator: torch.Generator) -> Any:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return x
    draw = torch.rand(x.shape, dtype=torch.float64, generator=generator)
    return float64.moved(x.to(torch.float64, copy=True), draw, dtype).to(x.dtype)


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
