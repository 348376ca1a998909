"""The inverse of I + A for strictly lower triangular A, from matrix products alone.

Leaves of 8 x 8 by (I + A)^-1 = (I - A)(I + A^2)(I + A^4), exact since A^8 = 0; then pairs:

    [[P, 0], [R, Q]]^-1 = [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]]

Doubling on all 64 x 64 at once is exact too on paper, and wrong by factors in float32 when keys
resemble each other: the powers grow before they vanish.
"""

import torch
from torch import Tensor


def unit_lower_inverse(strictly_lower: Tensor, leaf: int = 8) -> Tensor:
    """``(I + A)^-1`` of A ``[.., C, C]``, where C is ``leaf`` times a power of two.

    ``leaf`` is at most 8: the powers end with A^4.
    """
    size = strictly_lower.size(-1)
    blocks = torch.stack(
        [strictly_lower[..., i : i + leaf, i : i + leaf] for i in range(0, size, leaf)], dim=-3
    )
    identity = strictly_lower.new_ones([leaf, leaf]).tril().triu()
    power = torch.matmul(blocks, blocks)
    inverse = identity - blocks
    inverse = inverse + torch.matmul(inverse, power)
    inverse = inverse + torch.matmul(inverse, torch.matmul(power, power))
    while leaf < size:
        below = torch.stack(
            [
                strictly_lower[..., i + leaf : i + 2 * leaf, i : i + leaf]
                for i in range(0, size, 2 * leaf)
            ],
            dim=-3,
        )
        first = inverse[..., 0::2, :, :]
        second = inverse[..., 1::2, :, :]
        corner = -torch.matmul(torch.matmul(second, below), first)
        top = torch.cat((first, torch.zeros_like(corner)), dim=-1)
        inverse = torch.cat((top, torch.cat((corner, second), dim=-1)), dim=-2)
        leaf = 2 * leaf
    return inverse[..., 0, :, :]
