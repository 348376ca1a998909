"""One token of the recurrence: what a decoder runs; see ``oracle`` for the definition."""

from typing import Optional

import torch
from torch import Tensor

from linattn.recurrent.heads import check_state, grouped, per_channel


def step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: Tensor,
    decay: Optional[Tensor] = None,
    beta: Optional[Tensor] = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Run one token; shapes as in :func:`linattn.recurrent.chunked`, with N = 1.

    Raises:
        ValueError: shapes that do not fit together, or more than one token.
        TypeError: a state in half precision.
    """
    dtype = query.dtype
    if query.dim() == 4 and query.size(1) != 1:
        raise ValueError(
            f"step takes one token, got {query.size(1)}; run chunked on several, then go on from "
            "the state that it returns"
        )
    query, key, value, decay, beta = grouped(query, key, value, decay, beta)
    check_state(state, query, value)
    if decay is not None:
        state = torch.exp(per_channel(decay)).squeeze(1).unsqueeze(-1) * state
    # [B, 1, H, D] as [B, H, 1, D]: the same numbers, in the same places.
    key, value = key.transpose(1, 2), value.transpose(1, 2)
    if beta is not None:
        value = beta.transpose(1, 2).unsqueeze(-1) * (value - torch.matmul(key, state))
    state = state + key.transpose(-1, -2) * value
    output = torch.matmul(query.transpose(1, 2), state) * scale
    return output.transpose(1, 2).to(dtype), state
