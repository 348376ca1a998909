"""Products of the tokens of one chunk, decayed by what lies between the two.

    A[t, s] = sum_d q[t, d] k[s, d] exp(g[s+1, d] + .. + g[t, d])      s <= t, else 0

The log decays g are never above 0, and their sums are made of terms of one sign: neither the
difference of two running sums, which rounds as the longest of them does, nor exp of minus one,
which overflows where a gate closes.
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
    query: Tensor, key: Tensor, decay: Tensor, delta: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A of queries and of keys with themselves, for decays of each channel.

    Of two tokens, the later one is decayed since a place between the two, the earlier one until it:
    where the two halves meet of the smallest block of 2, 4, 8 .. that holds both. So there is
    one product for each size of block, and one without decay for a token and itself. All are taken
    for one chunk after the other: they fill a cache, and not the memory.

    Args:
        query: ``[chunks, .., C, D]``, C a power of two.
        key: the same.
        decay: the same.
        delta: whether the keys' own products are wanted.

    Returns:
        Both A ``[chunks, .., C, C]``, and the exponentials of :func:`sum_to` and
        :func:`sum_after`. Without ``delta``, the second A is the first.
    """
    counted, masks = _levels(decay, decay.size(-2))
    chunks = [query, key, decay]
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        found = _looped(chunks, counted, masks, delta)
    elif torch.compiler.is_exporting():
        found = _scanned(chunks, counted, masks, delta)
    else:
        found = _looped(chunks, counted, masks, delta)
    return found[0], found[-3], found[-2], found[-1]


def _levels(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Which decays each token of a block gets, ``[sizes, C, C]``, and which pairs are of it."""
    ones = lower(x, size)
    counted, masks = [torch.zeros_like(ones)], [ones.triu()]
    half = 1
    while half < size:
        number = x.new_ones([size], dtype=torch.int64).cumsum(0) - 1
        block = torch.div(number, half, rounding_mode="floor")
        late = block.remainder(2).to(x.dtype).unsqueeze(-1)
        same_half = block.unsqueeze(-1).eq(block).to(x.dtype)
        counted.append(same_half * (late * ones + (1 - late) * ones.tril(-1).transpose(0, 1)))
        block = torch.div(block, 2, rounding_mode="floor")
        same = block.unsqueeze(-1).eq(block).to(x.dtype)
        masks.append(same * late * (1 - late).transpose(0, 1))
        half = 2 * half
    counted.append(ones)
    counted.append(ones.tril(-1).transpose(0, 1))
    return torch.stack(counted), torch.stack(masks)


def _looped(chunks: list[Tensor], counted: Tensor, masks: Tensor, delta: bool) -> list[Tensor]:
    found = [
        _of_chunk([x[place] for x in chunks], counted, masks, delta)
        for place in range(chunks[0].size(0))
    ]
    return [torch.stack([one[i] for one in found]) for i in range(len(found[0]))]


@torch.jit.unused
def _scanned(chunks: list[Tensor], counted: Tensor, masks: Tensor, delta: bool) -> list[Tensor]:
    from linattn.torch_internals import scan

    def turn(nothing: Tensor, chunk: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return nothing + 1, _of_chunk(chunk, counted, masks, delta)

    return list(scan(turn, masks.new_ones([1]), chunks)[1])


def _of_chunk(chunk: list[Tensor], counted: Tensor, masks: Tensor, delta: bool) -> list[Tensor]:
    query, key, decay = chunk[0], chunk[1], chunk[2]
    levels = masks.size(0)
    between = torch.exp(torch.matmul(counted[:levels], decay.unsqueeze(-3)))
    since = torch.exp(torch.matmul(counted[levels], decay))
    until = torch.exp(torch.matmul(counted[levels + 1], decay))
    keys = key.unsqueeze(-3) * between
    known = keys.transpose(-1, -2)
    products = torch.matmul(query.unsqueeze(-3) * between, known) * masks
    found = [products.sum(dim=-3)]
    if delta:
        found.append((torch.matmul(keys, known) * masks).sum(dim=-3))
    found.extend([since, until])
    return found
