"""Copies of a module, and what in it cannot be copied."""

import copy
import warnings

from torch import nn

from linattn_export.live_module.signature import class_name


def copy_of(module: nn.Module) -> nn.Module | None:
    """A copy of ``module``; None where a part of it cannot be copied, such as a lock or a file."""
    try:
        return copy.deepcopy(module)
    except Exception:  # whatever some attribute's own way of being copied raises
        return None


def as_double(module: nn.Module) -> nn.Module:
    """``module``, a copy, made float64."""
    with warnings.catch_warnings():
        # The weights of a copied TorchScript module are leaves no more; nobody asks for gradients.
        warnings.filterwarnings("ignore", message="The .grad attribute", category=UserWarning)
        return module.double()


def blocker_of(module: nn.Module) -> str:
    """The attribute that cannot be copied, with its type."""
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in ("_modules", "_parameters", "_buffers"):
                try:
                    copy.deepcopy(value)
                except Exception:  # as above
                    where = f"{path}.{name}" if path else name
                    return f"attribute {where} ({type(value).__name__})"
    return f"{class_name(module)}"
