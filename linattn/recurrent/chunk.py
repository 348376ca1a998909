"""The recurrence of a whole sequence, in chunks of 64 or 32 tokens.

Within a chunk, with G_t the sum of its log decays up to t, and A of linattn.recurrent.decayed:

    o_t = scale ((exp(G_t) q_t)^T S + sum_{s <= t} A[t, s] v'_s)
    S+  = diag(exp(G_C)) S + K~^T V'                              K~_s = exp(g_{s+1} + .. + g_C) k_s

where v' = v, or for the delta rules V' = (I + L)^-1 beta (V - exp(G) K S) and
L[t, s] = beta_t A'[t, s] for s < t, A' being A of the keys with themselves.

The inverses, and decays between the tokens of a chunk, are computed for all chunks at once; what
has to do with the state, or is needed in one turn alone, in linattn.recurrent.carry.

Sources: Yang et al. 2023, arXiv 2312.06635 (chunks of gated attention); Yang et al. 2024, arXiv
2406.06484 section 3 (the delta rule as products).
Cost: O(N (C (D + E) + D E)) time, and log C times C D for decays of channels; O(N (C + D + E))
memory.
"""

from typing import Optional

import torch
from torch import Tensor

from linattn.recurrent.carry import carried
from linattn.recurrent.decayed import (
    decay_between,
    lower,
    products_by_channel,
    sum_after,
    sum_to,
)
from linattn.recurrent.heads import check_state, grouped
from linattn.recurrent.inverse import unit_lower_inverse
from linattn.recurrent.places import in_chunks, in_tokens, places, real

CHUNK, _SMALL_CHUNK = 64, 32


def chunked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Optional[Tensor] = None,
    beta: Optional[Tensor] = None,
    state: Optional[Tensor] = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all tokens; see :mod:`linattn.recurrent.oracle` for its definition.

    Heads may differ in number; each must divide the largest, H.

    Args:
        query: ``[B, N, Hq, D]``: token-major, as a projection leaves them.
        key: ``[B, N, Hk, D]``; of unit length for the delta rules, which diverge otherwise.
        value: ``[B, N, Hv, E]``.
        decay: log of what is kept, finite and at most 0: ``[B, N, H]``, or ``[B, N, H, D]`` for
            each channel.
        beta: how much of the error a token corrects, 0 to 1: ``[B, N, H]``; selects a delta rule.
        state: ``[B, H, D, E]`` in float32, or None for zeros.
        scale: of the queries.

    A token with key 0 (for delta rules: beta 0) and decay 0 leaves the state as it was: padding.

    Returns:
        Output ``[B, N, H, E]`` in the dtype of the query, state ``[B, H, D, E]`` in float32.

    Raises:
        ValueError: shapes that do not fit together.
        TypeError: a state in half precision.
    """
    dtype = query.dtype
    query, key, value, decay, beta = grouped(query, key, value, decay, beta)
    batch, length, heads, width = query.shape
    if state is None:
        state = query.new_zeros([batch, heads, width, value.size(-1)])
    check_state(state, query, value)
    size = _size(beta is not None or (decay is not None and decay.dim() == 4))
    rows, there = places(query, size), real(query, size)
    q, k, v = in_chunks(query, rows, size), in_chunks(key, rows, size), in_chunks(value, rows, size)
    b: Optional[Tensor] = None
    if beta is not None:
        b = in_chunks(beta.unsqueeze(-1), rows, size).squeeze(-1) * there
    mask = lower(q, size) * scale
    if decay is None:
        kind = "none"
        if b is None:
            chunks = [q, k, v, there.unsqueeze(-1)]
        else:
            chunks = [q, k, v, _solved(torch.matmul(k, k.transpose(-1, -2)), b)]
    elif decay.dim() == 3:
        kind = "head"
        g = in_chunks(decay.unsqueeze(-1), rows, size).squeeze(-1) * there
        between, since = decay_between(g), torch.exp(sum_to(g))
        until = torch.exp(sum_after(g))
        if b is None:
            chunks = [q, k, v]
            until = until * there
        else:
            chunks = [q, k, v, _solved(torch.matmul(k, k.transpose(-1, -2)) * between, b)]
        since = since.unsqueeze(-1)
        chunks.extend([between, since, until.unsqueeze(-1), since[..., -1:, :]])
    else:
        kind = "channel"
        g = in_chunks(decay, rows, size) * there.unsqueeze(-1)
        own, inner, since, until = products_by_channel(q, k, g, b is not None)
        whole = torch.exp(g.sum(dim=-2)).unsqueeze(-1)
        if b is None:
            until = until * there.unsqueeze(-1)
            chunks = [q, k, v]
        else:
            chunks = [q, k, v, _solved(inner, b)]
        chunks.extend([own, since, until, whole])
    output, last = carried(state, chunks, mask, scale, beta is not None, kind)
    return in_tokens(output, length).to(dtype), last


def _size(small: bool, chunk: int = CHUNK, small_chunk: int = _SMALL_CHUNK) -> int:
    """Inverses, and decays of channels, cost so much a pair of tokens that fewer pairs pay."""
    return small_chunk if small else chunk


def _solved(products: Tensor, beta: Tensor) -> Tensor:
    """What turns the errors of a chunk into what it writes: ``(I + L)^-1 beta``."""
    below = lower(products, products.size(-1), -1)
    return unit_lower_inverse(products * (beta.unsqueeze(-1) * below)) * beta.unsqueeze(-2)
