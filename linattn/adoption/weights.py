"""Weights of a peer's layer in ours: the same parameters where shapes allow, otherwise copies."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from linattn.adoption.contract import Unsupported


def plain(module: Any, *names: str, bias: bool | None = None) -> list[nn.Linear]:
    """The ``nn.Linear`` of each name, nothing in their place that only acts like one.

    Raises:
        Unsupported: a name holds something else (a quantised layer, an adapter), or has a bias
            where there must be none, or none where there must be one.
    """
    found = []
    for name in names:
        part = module
        for piece in name.split("."):
            part = getattr(part, piece)
        if type(part) is not nn.Linear:
            raise Unsupported(
                f"{name} is a {type(part).__name__}, not a plain nn.Linear; merge or dequantise it"
            )
        if bias is not None and (part.bias is not None) != bias:
            raise Unsupported(f"{name} has {'no ' if bias else 'a '}bias; ours does not fit it")
        found.append(part)
    return found


def load(layer: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Give ``layer`` these parameters, with their dtype, device and ``requires_grad``.

    Raises:
        Unsupported: a parameter is missing, is one too many or has another shape.
    """
    own = dict(layer.named_parameters())
    if own.keys() != weights.keys():
        raise Unsupported(
            f"weights do not fit: ours has {sorted(own)}, given were {sorted(weights)}"
        )
    for name, weight in weights.items():
        if own[name].shape != weight.shape:
            raise Unsupported(
                f"{name} has shape {list(weight.shape)}, ours needs {list(own[name].shape)}"
            )
        holder, _, last = name.rpartition(".")
        copied = nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)
        setattr(layer.get_submodule(holder), last, copied)
    return layer
