"""Tokens in chunks, and back: one gather of rows, which turns the axes and fills up at once.

Fixed axes would do with a transposition, but a length is seldom a multiple of the chunk, and a
padding, a transposition and a cut copy everything three times.
"""

import torch
from torch import Tensor


def chunk_count(length: int, size: int) -> int:
    """Chunks of ``size`` that hold ``length`` tokens."""
    return (length + size - 1) // size


def places(x: Tensor, size: int) -> Tensor:
    """Which row of ``x [B, N, H, *]`` comes where: ``[chunks, B, H, size]``, flat.

    Places behind the last token hold the last token again.
    """
    batch, length, heads = x.size(0), x.size(1), x.size(2)
    chunks = chunk_count(length, size)
    token = _count(x, chunks * size).clamp(max=length - 1)
    row = _count(x, batch).reshape(batch, 1, 1) * length + token.reshape(chunks, 1, 1, size)
    row = row * heads + _count(x, heads).reshape(heads, 1)
    return row.flatten()


def in_chunks(x: Tensor, rows: Tensor, size: int) -> Tensor:
    """``[B, N, H, D]`` as ``[chunks, B, H, size, D]``, given :func:`places`."""
    batch, length, heads = x.size(0), x.size(1), x.size(2)
    # A clone lies in memory as it says; torch.export asks anything else whether N is 1.
    flat = x.clone(memory_format=torch.contiguous_format).flatten(0, 2)
    chunks = chunk_count(length, size)
    return torch.unflatten(flat.index_select(0, rows), 0, [chunks, batch, heads, size])


def in_tokens(x: Tensor, length: int) -> Tensor:
    """``[chunks, B, H, size, E]`` as ``[B, N, H, E]``, without what is behind the last token."""
    batch, heads, size = x.size(1), x.size(2), x.size(3)
    token = _count(x, length)
    chunk = torch.div(token, size, rounding_mode="floor")
    row = chunk.reshape(length, 1) * batch * heads + _count(x, heads)
    row = (row + _count(x, batch).reshape(batch, 1, 1) * heads) * size
    row = row + (token - chunk * size).reshape(length, 1)
    return torch.unflatten(
        x.flatten(0, 3).index_select(0, row.flatten()), 0, [batch, length, heads]
    )


def real(x: Tensor, size: int) -> Tensor:
    """1 for the tokens of ``x [B, N, H, *]``, 0 behind the last: ``[chunks, 1, 1, size]``."""
    length = x.size(1)
    chunks = chunk_count(length, size)
    ones = torch.nn.functional.pad(x.new_ones([length]), [0, chunks * size - length])
    return ones.reshape(chunks, 1, 1, size)


def _count(x: Tensor, size: int) -> Tensor:
    """0, 1, 2 .. on the device of ``x``."""
    return x.new_ones([size], dtype=torch.int64).cumsum(0) - 1
