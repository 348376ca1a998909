"""Every layer that can go on from a state: those with own gates, and the causal methods."""

from typing import Any

import pytest
import torch
from torch import Tensor

from linattn import METHODS, attention_layer
from linattn.layers import LAYERS

D_MODEL, HEADS = 24, 3
RECURRENT = (*LAYERS, *(name for name, m in METHODS.items() if m.capabilities.recurrent))

each_layer = pytest.mark.parametrize("name", RECURRENT)


def make(name: str, **options: Any) -> Any:
    """A layer in float64 with weights that are not those of its start."""
    torch.manual_seed(0)
    layer = attention_layer(D_MODEL, HEADS, method=name, **options).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer.requires_grad_(False)


def tokens(batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(batch, length, D_MODEL, dtype=torch.float64, generator=generator)


def fresh(layer: Any, batch: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """States of zeros."""
    return [torch.zeros(batch, *spec.shape, dtype=dtype) for spec in layer.state_specs()]
