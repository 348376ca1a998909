"""Causal attention through positive features: the core of the causal kernel methods.

    numerator_i = sum_{j <= i} (phi(q_i) . phi(k_j)) v_j
    denominator_i = sum_{j <= i} phi(q_i) . phi(k_j)

Both are one linear recurrence: the values get a column of ones, whose outputs are the denominators.
"""

from typing import Optional

import torch
from torch import Tensor, nn

from linattn.numerics import check_heads, column_mask, widen, zero_masked
from linattn.recurrent import recurrence

ONE_HEAD = {
    "one head, sizes from 1": "torch.export asks of a tensor with one head how it lies in memory, "
    "and then excludes one token and one sequence; declare 2 and more of both, or use two heads"
}


class CausalAttention(nn.Module):
    """Attention over the tokens so far; a method adds ``features`` and ``divided``.

    Shapes as in :mod:`linattn.contract`. The state is S with z as its last column,
    ``[B, H, D', E + 1]`` for features of width D'.
    """

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes."""
        output, _ = self.advance(query, key, value, mask, None, False)
        return output

    def advance(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Optional[Tensor],
        state: Optional[Tensor],
        one_token: bool,
    ) -> tuple[Tensor, Tensor]:
        """Attend from a state; returns the output and the state after the last token.

        Args:
            query: as in ``forward``, as are ``key``, ``value`` and ``mask``.
            key: see there.
            value: see there.
            mask: see there.
            state: float32, or None at the start.
            one_token: there is exactly one.
        """
        check_heads(query, key, value)
        check_same_tokens(query, key)
        dtype = query.dtype
        query, key, value = widen(query), widen(key), widen(value)
        column = column_mask(mask, key) if mask is not None else None
        key = zero_masked(self.features(key), column)
        value = zero_masked(value, column)
        value = torch.cat((value, torch.ones_like(value[..., :1])), dim=-1)
        sums, last = recurrence(
            token_major(self.features(query)),
            token_major(key),
            token_major(value),
            None,
            None,
            state,
            1.0,
            one_token,
        )
        sums = head_major(sums).reshape(value.shape)
        return self.divided(sums[..., :-1], sums[..., -1:]).to(dtype), last

    def features(self, x: Tensor) -> Tensor:
        """Phi of queries and keys."""
        raise NotImplementedError

    def divided(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """The output."""
        raise NotImplementedError

    def state_shape(self, width: int) -> tuple[int, int]:
        """Of one head, for queries, keys and values of ``width``."""
        return self.feature_width(width), width + 1

    def feature_width(self, width: int) -> int:
        """Of ``features``, for queries and keys of ``width``."""
        return width


def with_heads(x: Tensor) -> Tensor:
    """``[N, D]`` or ``[B, N, D]`` as ``[B, 1, N, D]``; four axes as they are."""
    if x.dim() == 2:
        return x.unsqueeze(0).unsqueeze(0)
    return x.unsqueeze(1) if x.dim() == 3 else x


def token_major(x: Tensor) -> Tensor:
    """``[B, H, N, D]``, or fewer axes, as ``[B, N, H, D]``, which the recurrence takes."""
    return with_heads(x).transpose(1, 2)


def head_major(x: Tensor) -> Tensor:
    """``[B, N, H, D]`` as ``[B, H, N, D]``, for a reshape to follow.

    A copy, as reshape makes one too: but it asks first whether the length is 1.
    """
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format)


def check_same_tokens(query: Tensor, key: Tensor) -> None:
    """Raise ValueError unless there is a query for every key."""
    if query.size(-2) != key.size(-2):
        raise ValueError(
            "causal attention needs a query for every key, in their order, "
            f"got query {query.shape} and key {key.shape}"
        )
