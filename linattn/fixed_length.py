"""A module specialised to one sequence length."""

import copy

from torch import nn


def is_length_bound(module: nn.Module) -> bool:
    """Whether a part of ``module`` holds more than one length needs; see :func:`at_length`."""
    return any(hasattr(part, "at_length") for part in module.modules())


def at_length(module: nn.Module, length: int) -> nn.Module:
    """A copy of ``module`` whose length-bound parts hold only what ``length`` tokens use.

    A part takes part by having a method ``at_length(length)`` that returns its replacement
    (Linformer does). Everything else is copied as it is, so the copy computes the same output
    for inputs of ``length`` tokens.

    Raises:
        ValueError: a part cannot take ``length`` tokens.
    """
    copied = copy.deepcopy(module)
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            specialise = getattr(child, "at_length", None)
            if specialise is not None:
                setattr(parent, name, specialise(length))
    own = getattr(copied, "at_length", None)
    return copied if own is None else own(length)
