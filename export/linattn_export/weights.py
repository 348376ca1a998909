"""Reads a safetensors file into a module, and says exactly what does not fit."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from linattn_runtime_checks.errors import UsageError

_SHOWN = 5


def load_weights(module: nn.Module, path: Path, subject: str) -> None:
    """Load all parameters of ``module`` from ``path``, strictly.

    Args:
        module: what to load into.
        path: a safetensors file.
        subject: what the module is, for messages.

    Raises:
        UsageError: the file is missing, is not safetensors, lacks keys, has more, or has tensors
            of other shapes; the module is then unchanged.
    """
    if not path.is_file():
        raise UsageError(f"no such weights file: {path}; --weights takes a .safetensors file")
    try:
        found = load_file(path)
    except SafetensorError as error:
        raise UsageError(
            f"{path} is not a safetensors file ({error}); "
            "write it with safetensors.torch.save_file(module.state_dict(), path)"
        ) from error
    own = module.state_dict()
    problems = []
    if missing := sorted(own.keys() - found.keys()):
        problems.append(f"it lacks {_listed(missing)}")
    if extra := sorted(found.keys() - own.keys()):
        problems.append(f"it has also {_listed(extra)}")
    for name in sorted(own.keys() & found.keys()):
        if own[name].shape != found[name].shape:
            problems.append(
                f"{name} has shape {list(found[name].shape)}, expected {list(own[name].shape)}"
            )
        elif not found[name].is_floating_point():
            problems.append(f"{name} has dtype {found[name].dtype}, expected floating point")
    if problems:
        raise UsageError(f"{path} does not fit {subject}: {'; '.join(problems[:_SHOWN])}")
    with torch.no_grad():
        module.load_state_dict(found)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
