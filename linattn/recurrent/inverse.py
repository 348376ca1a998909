"""The inverse of I + A for strictly lower triangular A.

Blocks of 8 rows one row after the other, all blocks at once; then pairs:

    [[P, 0], [R, Q]]^-1 = [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]]

Sums of powers of A would do with fewer operations, and are wrong by factors in float32 when keys
resemble each other: the powers grow before they vanish.
"""

import torch
from torch import Tensor


def unit_lower_inverse(strictly_lower: Tensor, leaf: int = 8) -> Tensor:
    """``(I + A)^-1`` of A ``[.., C, C]``, where C is ``leaf`` times a power of two."""
    size = strictly_lower.size(-1)
    inverse = _leaves(_blocks(strictly_lower, leaf, leaf, 0))
    while leaf < size:
        below = _blocks(strictly_lower, leaf, 2 * leaf, leaf)
        pairs = torch.unflatten(inverse, -3, [size // (2 * leaf), 2])
        first, second = pairs[..., 0, :, :], pairs[..., 1, :, :]
        corner = torch.matmul(torch.matmul(-second, below), first)
        top = torch.nn.functional.pad(first, [0, leaf])
        inverse = torch.cat((top, torch.cat((corner, second), dim=-1)), dim=-2)
        leaf = 2 * leaf
    return inverse.squeeze(-3)


def _blocks(x: Tensor, size: int, step: int, down: int) -> Tensor:
    """Every ``step`` along the diagonal, ``down`` below it: ``[.., blocks, size, size]``."""
    width, count = x.size(-1), x.size(-1) // step
    corner = (x.new_ones([count], dtype=torch.int64).cumsum(0) - 1) * step
    row = x.new_ones([size], dtype=torch.int64).cumsum(0) - 1
    # Each row of x in pieces of the size of a row of a block.
    piece = (corner.unsqueeze(-1) + row + down) * (width // size)
    piece = piece + torch.div(corner, size, rounding_mode="floor").unsqueeze(-1)
    pieces = torch.unflatten(x.flatten(-2), -1, [width * width // size, size])
    return torch.unflatten(pieces.index_select(-2, piece.flatten()), -2, [count, size])


def _leaves(blocks: Tensor) -> Tensor:
    """Of A ``[.., n, n]`` with the blocks as the last axis, where they fill whole registers."""
    size = blocks.size(-1)
    flat = blocks.reshape(-1, size * size).transpose(0, 1).reshape(size, size, -1)
    identity = blocks.new_ones([size, size]).tril().triu().unsqueeze(-1)
    rows = [identity[0].expand_as(flat[0])]
    for i in range(1, size):
        row = identity[i] - flat[i, 0] * rows[0]
        for j in range(1, i):
            row = row - flat[i, j] * rows[j]
        rows.append(row)
    inverse = torch.stack(rows).reshape(size * size, -1).transpose(0, 1)
    return inverse.reshape(blocks.shape)
