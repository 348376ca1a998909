"""What a module is called and what it takes, also where TorchScript keeps that."""

import inspect
from collections.abc import Mapping

import torch
from torch import nn

from linattn.torch_internals import forward_schema


def class_name(module: nn.Module) -> str:
    """The name of its class, also of one that was scripted, traced or captured."""
    scripted = isinstance(module, torch.jit.ScriptModule)
    return str(module.original_name) if scripted else type(module).__qualname__


def parameters_of(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """The arguments of ``forward``; a scripted or traced one keeps them in its schema."""
    if not isinstance(module, torch.jit.ScriptModule):
        return inspect.signature(module.forward).parameters
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    arguments = forward_schema(module).arguments[1:]
    return {
        argument.name: inspect.Parameter(
            argument.name,
            kind,
            default=argument.default_value if argument.has_default_value() else empty,
        )
        for argument in arguments
    }
