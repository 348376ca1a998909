"""What layers call: the recurrence in the execution that suits where it runs."""

from typing import Optional

import torch
from torch import Tensor

from linattn.numerics import widen
from linattn.recurrent.chunk import chunked
from linattn.recurrent.heads import check_state, grouped
from linattn.recurrent.operator import is_wanted
from linattn.recurrent.step import step


def recurrence(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Optional[Tensor],
    beta: Optional[Tensor],
    state: Optional[Tensor],
    scale: float,
    one_token: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence; the result and all else as in :func:`linattn.recurrent.chunked`.

    ``one_token`` says that there is exactly one: a decoder's step.
    """
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        pass  # not "and not": TorchScript compiles both sides of an "and"
    elif is_wanted():
        return _as_operator(query, key, value, decay, beta, state, scale)
    if one_token:
        if state is None:
            heads = max(query.size(2), key.size(2), value.size(2))
            state = _zeros(query, heads, value.size(3))
        return step(query, key, value, state, decay, beta, scale)
    return chunked(query, key, value, decay, beta, state, scale)


@torch.jit.unused
def _as_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Optional[Tensor],
    beta: Optional[Tensor],
    state: Optional[Tensor],
    scale: float,
) -> tuple[Tensor, Tensor]:
    dtype = query.dtype
    query, key, value, decay, beta = grouped(query, key, value, decay, beta)
    if state is None:
        state = _zeros(query, query.size(2), value.size(3))
    check_state(state, query, value)
    output, last = torch.ops.linattn.recurrence(query, key, value, decay, beta, state, scale)
    return output.to(dtype), last


def _zeros(query: Tensor, heads: int, width: int) -> Tensor:
    return widen(query).new_zeros([query.size(0), heads, query.size(3), width])
