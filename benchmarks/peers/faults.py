"""Wrong attention: the methods with one thing changed, as faults to plant."""

from typing import Any

import torch
from torch import Tensor, nn

from linattn.numerics import elu_plus_one as phi

Inputs = dict[str, Tensor]


def kernel(q: Tensor, k: Tensor, v: Tensor, eps: float = 1e-6, scale: float = 1.0) -> Tensor:
    """Attention from features; faults are planted in what it is given."""
    return q @ (k.mT @ v) / (q @ k.sum(-2).unsqueeze(-1) * scale + eps)


def taylor(q: Tensor, k: Tensor, v: Tensor, count: int) -> Tensor:
    """Taylor attention that takes the number of tokens to be ``count``."""
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    return (v.sum(-2, keepdim=True) + q @ (k.mT @ v)) / (count + q @ k.sum(-2).unsqueeze(-1))


def blind(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Efficient attention that ignores the query."""
    return torch.softmax(0 * q, -1) @ (torch.softmax(k, -2).mT @ v)


def blind_elu(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Elu attention that ignores the query."""
    return kernel(phi(0 * q), phi(k), v)


def column(mask: Tensor, shift: int = 0) -> Tensor:
    """The mask, late by ``shift`` tokens, as a factor of keys and values."""
    return torch.roll(mask, shift, dims=1)[:, None, :, None].float()


def one_nan(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Elu attention with one element NaN."""
    output = kernel(phi(q), phi(k), v)
    output[0, 1, output.size(2) // 2, 3] = torch.nan
    return output


def scale_weight(entry: nn.Module, inputs: Inputs) -> None:
    """Multiply the largest weight of the value projection by 1.001."""
    values = entry.get_parameter("layer.in_proj_weight").chunk(3)[2].view(-1)
    values[values.abs().argmax()] *= 1.001


def swap_projections(entry: Any, inputs: Inputs) -> None:
    """Take E for F and F for E."""
    e, f = entry.attention.key_projection, entry.attention.value_projection
    entry.attention.key_projection, entry.attention.value_projection = f, e


def make_stale(entry: nn.Module, inputs: Inputs) -> None:
    """Answer with the output of the call before, which had another input."""
    generator = torch.Generator().manual_seed(1)
    inputs |= {name: torch.randn(x.shape, generator=generator) for name, x in inputs.items()}
