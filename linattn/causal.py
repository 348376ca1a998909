"""Causal attention through positive features: the core of the causal kernel methods.

    numerator_i = sum_{j <= i} (phi(q_i) . phi(k_j)) v_j
    denominator_i = sum_{j <= i} phi(q_i) . phi(k_j)

Both are one linear recurrence: the values get a column of ones, whose outputs are the denominators.
"""

from typing import Optional

import torch
from torch import Tensor

from linattn.numerics import zero_masked
from linattn.recurrent import chunked

ONE_HEAD = {
    "one head, sizes from 1": "torch.export asks of a tensor with one head how it lies in memory, "
    "and then excludes one token and one sequence; declare 2 and more of both, or use two heads"
}


def causal_sums(
    phi_query: Tensor, phi_key: Tensor, value: Tensor, column: Optional[Tensor]
) -> tuple[Tensor, Tensor]:
    """Numerator and denominator of every token.

    Args:
        phi_query: features of the queries, ``[.., N, D]``, two to four axes.
        phi_key: features of the keys, of the same shape.
        value: ``[.., N, E]``.
        column: from :func:`linattn.numerics.column_mask`.

    Returns:
        ``[.., N, E]`` and ``[.., N, 1]``.
    """
    phi_key = zero_masked(phi_key, column)
    value = zero_masked(value, column)
    value = torch.cat((value, torch.ones_like(value[..., :1])), dim=-1)
    sums, _ = chunked(with_heads(phi_query), with_heads(phi_key), with_heads(value))
    sums = sums.reshape(value.shape)
    return sums[..., :-1], sums[..., -1:]


def with_heads(x: Tensor) -> Tensor:
    """``[N, D]`` or ``[B, N, D]`` as ``[B, 1, N, D]``; four axes as they are."""
    if x.dim() == 2:
        return x.unsqueeze(0).unsqueeze(0)
    return x.unsqueeze(1) if x.dim() == 3 else x


def check_same_tokens(query: Tensor, key: Tensor) -> None:
    """Raise ValueError unless there is a query for every key."""
    if query.size(-2) != key.size(-2):
        raise ValueError(
            "causal attention needs a query for every key, in their order, "
            f"got query {query.shape} and key {key.shape}"
        )
