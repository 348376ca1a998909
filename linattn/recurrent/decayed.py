"""Products of the tokens of one chunk, decayed by what lies between the two.

    A[t, s] = sum_d q[t, d] k[s, d] exp(g[s+1, d] + .. + g[t, d])      s <= t, else 0

The log decays g are never above 0, and what is computed here are sums of them and products of
their exponentials: neither the difference of two running sums, which rounds as the longest of them
does, nor exp of minus one, which overflows where a gate closes.
"""

import torch
from torch import Tensor

def lower(x: Tensor, size: int, diagonal: int = 0) -> Tensor:
    """Ones in and below a diagonal, ``[size, size]``."""
    return x.new_ones([size, size]).tril(diagonal)


def sum_to(decay: Tensor) -> Tensor:
    """Of decays ``[.., C]``: of every token and all before it."""
    return torch.matmul(decay, lower(decay, decay.size(-1)).transpose(0, 1))


def sum_after(decay: Tensor) -> Tensor:
    """Of decays ``[.., C]``: of all that come after a token."""
    return torch.matmul(decay, lower(decay, decay.size(-1), -1))


def decay_between(decay: Tensor) -> Tensor:
    """The exponential in A, ``[.., C, C]``, of decays ``[.., C]``; zeros above the diagonal.

    One product with a constant that says for each pair which decays are between.
    """
    size = decay.size(-1)
    to, after = lower(decay, size), lower(decay, size, -1)
    counted = (to.transpose(0, 1).unsqueeze(2) * after.unsqueeze(1)).flatten(1)
    sums = torch.unflatten(torch.matmul(decay, counted), -1, [size, size])
    # Not exp of something far below zero: processors take ages over numbers that small.
    return torch.exp(sums) * to


def products_by_channel(
    query: Tensor, key: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A for decays of each channel.

    Blocks of 1, 2, 4 .. tokens: two neighbours make one of twice the size. What the later one asks
    of the earlier is decayed where the two meet: queries since their block began, keys until theirs
    ended.

    Args:
        query: ``[.., C, D]``, C a power of two.
        key: the same.
        kept: the exponentials of the decays.

    Returns:
        A ``[.., C, C]``; the queries decayed since the chunk began, the keys until it ends, and
        what is kept by all of it, ``[.., 1, D]``.
    """
    size = query.size(-2)
    within = (query * key).sum(dim=-1, keepdim=True).unsqueeze(-1)  # [.., blocks, part, part]
    since, until = query * kept, key
    whole = kept.unsqueeze(-2)  # [.., blocks, 1, D]
    part = 1
    while part < size:
        pairs = [size // (2 * part), 2, part]
        late, early = torch.unflatten(since, -2, pairs), torch.unflatten(until, -2, pairs)
        asked, known = late[..., 1, :, :], early[..., 0, :, :]
        if part <= 2:  # so small that products of matrices take longer
            across = (asked.unsqueeze(-2) * known.unsqueeze(-3)).sum(dim=-1)
        else:
            across = torch.matmul(asked, known.transpose(-1, -2))
        blocks = torch.unflatten(within, -3, [size // (2 * part), 2])
        top = torch.nn.functional.pad(blocks[..., 0, :, :], [0, part])
        within = torch.cat((top, torch.cat((across, blocks[..., 1, :, :]), dim=-1)), dim=-2)
        both = torch.unflatten(whole, -3, [size // (2 * part), 2])
        first, second = both[..., 0, :, :], both[..., 1, :, :]
        ones = torch.ones_like(first)
        since = (late * torch.stack((ones, first), dim=-3)).flatten(-4, -2)
        until = (early * torch.stack((second, ones), dim=-3)).flatten(-4, -2)
        whole = first * second
        part = 2 * part
    return within.squeeze(-3), since, until, whole.squeeze(-3)
