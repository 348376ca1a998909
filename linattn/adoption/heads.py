"""What stand-ins do before and after a method: heads, and the rotation of positions."""

import torch
from torch import Tensor


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``[B, H, N, D]`` of ``[B, N, H D]``."""
    return torch.unflatten(x, -1, [heads, x.size(-1) // heads]).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """``[B, N, H D]`` of ``[B, H, N, D]``."""
    # A copy, as flatten makes one too: but it asks first whether the length is 1.
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).flatten(2)


def rotate_pairs(x: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
    """Turn neighbouring channels of ``x [.., N, D]`` by angles of ``sin``, ``cos [N, D / 2]``.

    Su et al. 2021, arXiv 2104.09864, section 3.4.
    """
    pairs = torch.unflatten(x, -1, [x.size(-1) // 2, 2])
    even, odd = pairs[..., 0], pairs[..., 1]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return turned.flatten(-2)


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """``x [B, H, N, D]`` by ``positions [1, N, D]``: sines of all angles, then cosines."""
    half = positions.size(-1) // 2
    return rotate_pairs(x, positions[0, :, :half], positions[0, :, half:])
