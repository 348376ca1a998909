"""Weights that are not there yet: of lazy modules, and on the meta device."""

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from linattn.torch_internals import buffers_of, parameters_of, unsaved_buffers_of
from linattn_export.inputs.drawing import draw
from linattn_export.live_module.modes import evaluated
from linattn_export.own.call import make_entry
from linattn_export.own.probe import run_entry, sizes_of
from linattn_export.own.spec import Inputs
from linattn_models import InputSpec


def initialise(module: nn.Module, inputs: Inputs, specs: tuple[InputSpec, ...], seed: int) -> None:
    """Run a lazy module once, so that it has weights; these are drawn from ``seed``.

    Raises:
        UsageError: it does not take what the SPEC describes.
    """
    tensors = [*module.parameters(), *module.buffers()]
    if not any(is_lazy(tensor) for tensor in tensors):
        return
    modes = {part: part.training for part in module.modules()}
    usual = next((x for x in tensors if x.is_floating_point()), torch.empty(0))
    sizes = sizes_of(inputs.ranges)[0]
    drawn = draw(specs, sizes, family="normal", dtype=usual.dtype, seed=seed)
    try:
        evaluated(module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            entry = make_entry(module, inputs, None, 0)
            run_entry(entry, {k: x.to(usual.device) for k, x in drawn.items()})
    finally:
        for part, mode in modes.items():
            part.training = mode


def make_room(module: nn.Module) -> None:
    """Give what a state dict holds of weights on the meta device memory on the CPU."""
    for part in module.modules():
        for name, parameter in parameters_of(part).items():
            if parameter is not None and parameter.is_meta:
                room = torch.empty_like(parameter, device="cpu")
                parameters_of(part)[name] = nn.Parameter(room, parameter.requires_grad)
        for name, buffer in buffers_of(part).items():
            kept = name not in unsaved_buffers_of(part)
            if buffer is not None and buffer.is_meta and kept:
                buffers_of(part)[name] = torch.empty_like(buffer, device="cpu")
