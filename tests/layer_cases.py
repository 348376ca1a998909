"""Small layers of every method, and inputs and masks for them."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linattn import METHODS, MultiHeadAttention
from linattn.contract import SIZES

torch.set_num_threads(1)  # the tensors are tiny


BATCH, N, M, HEADS = 3, 7, 12, 3


N_MAX = 16  # of the methods whose weights bound the length


each_method = pytest.mark.parametrize("name", METHODS)


each_masking = pytest.mark.parametrize("masked", [False, True], ids=["no mask", "masked"])


def small(name: str) -> dict[str, Any]:
    names = [f.name for f in dataclasses.fields(METHODS[name].config) if f.type is int]
    sizes = {name: 6 for name in names if name not in SIZES}  # the layer's own
    return sizes if METHODS[name].capabilities.any_length else sizes | {"max_length": N_MAX}


def build(name: str, **options: Any) -> MultiHeadAttention:
    torch.manual_seed(0)
    layer = MultiHeadAttention(M, HEADS, method=name, **(small(name) | options))
    with_random_biases(layer)
    return layer


def with_random_biases(module: nn.Module) -> None:
    """Biases start at zero, where mistakes with them do not show."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)


def tokens(batch: int = BATCH, n: int = N) -> Tensor:
    return torch.randn(batch, n, M, generator=torch.Generator().manual_seed(1))


def real_tokens(batch: int = BATCH, n: int = N) -> Tensor:
    """Right padding; the second sequence of a batch is empty, the third has one token."""
    return torch.arange(n) < torch.tensor([n, 0, 1])[:batch].unsqueeze(1)
