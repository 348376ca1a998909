"""Products of the tokens of one chunk, decayed by what lies between the two.

    A[t, s] = sum_d q[t, d] k[s, d] exp(g[s+1, d] + .. + g[t, d])      s <= t, else 0

The log decays g are never above 0, and their sums are made of terms of one sign: neither the
difference of two running sums, which rounds as the longest of them does, nor exp of minus one,
which overflows where a gate closes.
"""

import torch
from torch import Tensor

_PARTS = 4
CHUNK = _PARTS**3


def decayed_products(query: Tensor, key: Tensor, decay: Tensor) -> Tensor:
    """A ``[.., C, C]`` of query and key ``[.., C, D]`` and decay ``[.., C, 1 or D]``, C = CHUNK."""
    if decay.size(-1) == 1:
        ones = torch.ones_like(decay)
        return torch.matmul(query, key.transpose(-1, -2)) * _by_channel(ones, ones, decay)
    return _by_channel(query, key, decay)


def sum_to(decay: Tensor) -> Tensor:
    """``[.., n, D]``: of every token and all before it."""
    return torch.matmul(_ones(decay).tril(), decay)


def sum_after(decay: Tensor) -> Tensor:
    """``[.., n, D]``: of all that come after a token."""
    return torch.matmul(_ones(decay).triu(1), decay)


def _ones(x: Tensor) -> Tensor:
    return x.new_ones([x.size(-2), x.size(-2)])


def _by_channel(query: Tensor, key: Tensor, decay: Tensor) -> Tensor:
    """The chunk is cut in four, and again.

    What lies between tokens of two parts is cut where the later part begins. Within four tokens
    every pair has its own exponents.
    """
    q4, k4, g4 = _cut(query), _cut(key), _cut(decay)
    q16, k16, g16 = _cut(q4), _cut(k4), _cut(g4)
    lower = _ones(g16).tril()
    counted = g16.unsqueeze(-2) * lower.tril(-1).unsqueeze(-1)  # [.., r, s, D]: g_r where r > s
    between = torch.matmul(lower, counted.flatten(-2))
    between = torch.unflatten(between, -1, [lower.size(0), decay.size(-1)])
    pairs = q16.unsqueeze(-2) * k16.unsqueeze(-3) * torch.exp(between)
    return _joined(query, key, decay, _joined(q4, k4, g4, pairs.sum(dim=-1) * lower))


def _cut(x: Tensor, parts: int = _PARTS) -> Tensor:
    """``[.., n, D]`` as ``[.., 4, n / 4, D]``."""
    return torch.unflatten(x, -2, [parts, x.size(-2) // parts])


def _joined(query: Tensor, key: Tensor, decay: Tensor, within: Tensor) -> Tensor:
    """A ``[.., n, n]``, given that of each of its four parts: ``within [.., 4, n / 4, n / 4]``."""
    part, parts = within.size(-1), within.size(-3)
    rows = []
    for i in range(parts):
        start = i * part
        row = within[..., i, :, :]
        if i > 0:
            q = query[..., start : start + part, :]
            q = q * torch.exp(sum_to(decay[..., start : start + part, :]))
            k = key[..., :start, :] * torch.exp(sum_after(decay[..., :start, :]))
            row = torch.cat((torch.matmul(q, k.transpose(-1, -2)), row), dim=-1)
        rows.append(torch.nn.functional.pad(row, [0, (parts - 1 - i) * part]))
    return torch.cat(rows, dim=-2)
