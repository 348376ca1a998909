"""Uses somebody's module and leaves it as it was."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from linattn_runtime_checks.errors import UsageError


@contextmanager
def borrowed(module: nn.Module, dtype: torch.dtype) -> Iterator[nn.Module]:
    """The module in eval mode, on the CPU and in ``dtype``; a copy only where that needs one.

    At the end modes, gradient flags and buffers are as they were, whatever happened between.

    Raises:
        UsageError: its weights are of another dtype.
    """
    tensors = [*module.parameters(), *module.buffers()]
    kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    half = dtype == torch.float16
    if not half and kinds - {torch.float32}:
        found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise UsageError(
            f"the module has weights of {found}, expected float32; use --dtype fp16 for half "
            "precision, or module.float()"
        )
    if (half and kinds - {dtype}) or any(tensor.device.type != "cpu" for tensor in tensors):
        yield copy.deepcopy(module).to("cpu", dtype).eval().requires_grad_(False)
        return
    modes = {part: part.training for part in module.modules()}
    gradients = {parameter: parameter.requires_grad for parameter in module.parameters()}
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        yield module.eval().requires_grad_(False)  # a weight may be an output, to be read as it is
    finally:
        for part, mode in modes.items():
            part.training = mode
        for parameter, wanted in gradients.items():
            parameter.requires_grad_(wanted)
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in buffers and not torch.equal(buffer, buffers[name]):
                    buffer.copy_(buffers[name])
