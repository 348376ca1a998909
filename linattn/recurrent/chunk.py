"""The recurrence of a whole sequence, in chunks of 64 tokens: matrix products for all at once.

Within a chunk, with G_t the sum of its log decays up to t, and A of linattn.recurrent.decayed:

    o_t = scale (exp(G_t) q_t)^T S + sum_{s <= t} A[t, s] v'_s
    S+  = diag(exp(G_C)) S + K~^T V'                              K~_s = exp(g_{s+1} + .. + g_C) k_s

where v' = v, or for the delta rules V' = U - W S with (I + L) U = beta V, (I + L) W = beta exp(G) K
and L[t, s] = beta_t A'[t, s] for s < t, A' being A of the keys with themselves.

Sources: Yang et al. 2023, arXiv 2312.06635 (chunks of gated attention); Yang et al. 2024, arXiv
2406.06484 section 3 (the delta rule as products).
Cost: O(N (C (D + E) + D E)) time, O(N (C + D E / C)) memory.
"""

from typing import Optional

import torch
from torch import Tensor

from linattn.recurrent.carry import states
from linattn.recurrent.decayed import CHUNK, decayed_products, sum_after, sum_to
from linattn.recurrent.heads import check_state, grouped, per_channel
from linattn.recurrent.inverse import unit_lower_inverse


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
    q = _chunks(query * scale)
    k = _chunks(key)
    v = _chunks(value)
    g = _chunks(per_channel(decay)) if decay is not None else None
    own = _products(q, k, g)
    from_state, reads, to_end = q, k, k
    kept: Optional[Tensor] = None
    if g is not None:
        since_start = torch.exp(sum_to(g))
        from_state, reads = q * since_start, k * since_start
        to_end = k * torch.exp(sum_after(g))
        kept = since_start[..., -1, :]
        if kept.size(-1) == 1:
            kept = kept.squeeze(-1)
    if beta is None:
        added = torch.matmul(to_end.transpose(-1, -2), v)
        before, last = states(state, added, kept)
    else:
        b = _chunks(beta.unsqueeze(-1))
        solved = unit_lower_inverse(_products(b * k, k, g).tril(-1))
        written = torch.matmul(solved, b * v)
        recalls = torch.matmul(solved, b * reads)
        ends = to_end.transpose(-1, -2)
        forget = torch.matmul(ends, recalls)
        identity = forget.new_ones([width, width]).tril().triu()
        if kept is not None:
            identity = identity * (kept if kept.dim() == 4 else kept.unsqueeze(-1)).unsqueeze(-1)
        before, last = states(state, torch.matmul(ends, written), identity - forget)
        v = written - torch.matmul(recalls, before)
    output = torch.matmul(from_state, before) + torch.matmul(own, v)
    output = output.permute(1, 0, 3, 2, 4).clone(memory_format=torch.contiguous_format)
    # Cut by padding with less than nothing: of a slice torch.export cannot tell that it is N long.
    output = output.flatten(3, 4).flatten(1, 2)
    output = torch.nn.functional.pad(output, [0, 0, 0, length - output.size(1)])
    return torch.unflatten(output, 2, [heads, value.size(-1)]).to(dtype), last


def _chunks(x: Tensor, size: int = CHUNK) -> Tensor:
    """``[B, N, H, D]`` as ``[chunks, B, H, C, D]``, with zeros in place of tokens that are not."""
    chunks = (x.size(1) + size - 1) // size
    batch, heads, width = x.size(0), x.size(2), x.size(3)
    # With one axis for both: pad asks of four axes how they lie in memory, and so whether N is 1.
    x = x.clone(memory_format=torch.contiguous_format).flatten(2, 3)
    x = torch.nn.functional.pad(x, [0, 0, 0, chunks * size - x.size(1)])
    x = x.reshape(batch, chunks, size, heads, width).permute(1, 0, 3, 2, 4)
    return x.clone(memory_format=torch.contiguous_format)


def _products(query: Tensor, key: Tensor, decay: Optional[Tensor]) -> Tensor:
    if decay is not None:
        return decayed_products(query, key, decay)
    return torch.matmul(query, key.transpose(-1, -2)).tril()
