"""Uses somebody's module and leaves it as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from linattn_export.live_module.copies import blocker_of, copy_of
from linattn_export.live_module.kept import Kept
from linattn_export.live_module.modes import evaluated
from linattn_runtime_checks.contract.errors import UsageError


@contextmanager
def borrowed(module: nn.Module, dtype: torch.dtype) -> Iterator[nn.Module]:
    """The module in eval mode, on the CPU and in ``dtype``; a copy only where that needs one.

    At the end modes, gradient flags, buffers and attributes are as they were, and so is what its
    hooks collect, whatever happened between.

    Raises:
        UsageError: its weights are of another dtype, or it cannot be copied and would have to be.
    """
    tensors = [*module.parameters(), *module.buffers()]
    kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    half = dtype == torch.float16
    if not half and kinds - {torch.float32}:
        found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise UsageError(
            f"the module has weights of {found}, expected float32; use `dtype='fp16'` for half "
            "precision, or module.float()"
        )
    kept = Kept(module)
    elsewhere = any(tensor.device.type != "cpu" for tensor in tensors)
    modes = {part: part.training for part in module.modules() if hasattr(part, "training")}
    gradients = {parameter: parameter.requires_grad for parameter in module.parameters()}
    try:
        if (half and kinds - {dtype}) or elsewhere:
            copied = copy_of(module)
            if copied is None:
                to = (
                    "its weights are not on the CPU"
                    if elsewhere
                    else "`dtype='fp16'` asks for half"
                )
                raise UsageError(
                    f"the module cannot be copied because of its {blocker_of(module)}, and {to}; "
                    f"give it as module.to('cpu', {dtype}), or let __getstate__ leave that out"
                )
            lent = copied.to("cpu", dtype)
        else:
            lent = module
        for parameter in lent.parameters():
            parameter.requires_grad_(False)  # a weight may be an output, to be read as it is
        yield evaluated(lent)
    finally:
        for part, mode in modes.items():
            part.training = mode
        for parameter, wanted in gradients.items():
            parameter.requires_grad_(wanted)
        kept.restore()
