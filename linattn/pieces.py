"""The same attention in pieces, for sequences that would not fit into memory as a whole.

:func:`with_heads_in_turn` makes another module, and so another artifact, for lengths at which the
scores of all heads are gigabytes. :func:`in_pieces` is for runs in PyTorch only, and changes no
artifact. It takes the heads of a layer one after the other, and the rows of queries of quadratic
attention in blocks. No head depends on another head, and no row of the output on another query,
so each number is computed by the same operations as in the whole run. Only the order in which a
matrix product adds up may differ with the size of its blocks, in float32 as in float64: that is
rounding in the last place.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.methods import METHODS
from linattn.multihead import MultiHeadAttention
from linattn.numerics import zero_where_empty

MOST_SCORES = 2**30
"""Bytes of float32 scores of one sequence that an artifact may hold at once."""
BLOCK_SCORES = 2**26
"""Bytes of scores of one block of query rows."""
LONG = 8192
"""Tokens above which a layer takes its heads one after the other."""
_FLOAT32 = 4


class HeadsInTurn(nn.Module):
    """A core whose ``heads`` do not depend on each other, ``at_once`` of them at a time."""

    def __init__(self, core: nn.Module, heads: int, at_once: int) -> None:
        super().__init__()
        self.core = core
        self.heads = heads
        self.at_once = at_once
        self.config: Any = core.config

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes, here with heads."""
        outputs: list[Tensor] = []
        for start in range(0, query.size(1), self.at_once):
            stop = start + self.at_once
            part = self.core(query[:, start:stop], key[:, start:stop], value[:, start:stop], mask)
            outputs.append(part)
        return torch.cat(outputs, dim=1)


def heads_at_once(length: int) -> int:
    """How many heads may hold their scores of ``length`` tokens at once."""
    return max(MOST_SCORES // (_FLOAT32 * length * length), 1)


def with_heads_in_turn(module: nn.Module, length: int) -> None:
    """Let the quadratic cores in ``module`` take their heads in turn, where ``length`` asks for it.

    Args:
        module: changed in place; its parameters keep their names.
        length: the longest sequence.
    """
    at_once = heads_at_once(length)
    for parent in list(module.modules()):
        heads = getattr(parent, "heads", 0)
        if at_once >= heads or isinstance(parent, HeadsInTurn):
            continue
        for name, child in list(parent.named_children()):
            if _quadratic(child):
                setattr(parent, name, HeadsInTurn(child, heads, at_once))


def scores_beside(module: nn.Module, length: int) -> float:
    """How many times as many heads would hold scores at once, if ``length`` were the longest."""
    found = [
        min(part.heads, heads_at_once(length)) / part.at_once
        for part in module.modules()
        if isinstance(part, HeadsInTurn)
    ]
    return max(found, default=1.0)


@contextmanager
def in_pieces(module: nn.Module) -> Iterator[None]:
    """Within it, runs of ``module`` take attention in pieces wherever its method allows it.

    Short sequences are one piece and run as they are.
    """
    with ExitStack() as stack:
        for part in module.modules():
            if _quadratic(part):
                stack.enter_context(_replaced(part, _core_in_rows))
            elif isinstance(part, MultiHeadAttention) and _heads_alike(part):
                stack.enter_context(_replaced(part, _layer_by_heads))
        yield


def _quadratic(part: nn.Module) -> bool:
    return any(
        record.capabilities.cost == "quadratic" and type(part) is record.module
        for record in METHODS.values()
    )


def _heads_alike(part: MultiHeadAttention) -> bool:
    """Whether the core treats every head in the same way: it holds no tensors and no state."""
    record = METHODS[part.method_name]
    return record.capabilities.cross_attention and not part.attention.state_dict()


@contextmanager
def _replaced(part: nn.Module, instead: Callable[..., Tensor]) -> Iterator[None]:
    whole = part.forward
    own = "forward" in part.__dict__

    def forward(*args: Any, **kwargs: Any) -> Tensor:
        return instead(part, whole, *args, **kwargs)

    part.forward = forward
    try:
        yield
    finally:
        if own:
            part.forward = whole
        else:
            part.__dict__.pop("forward", None)


def _core_in_rows(
    part: nn.Module,
    whole: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor] = None,
) -> Tensor:
    # One row of queries needs the scores of all keys, in every head of every sequence.
    row = query.element_size() * key.size(-2)
    for size in query.shape[:-2]:
        row *= size
    rows, length = max(BLOCK_SCORES // max(row, 1), 1), query.size(-2)
    if rows >= length:
        return whole(query, key, value, mask)
    output = torch.empty([*query.shape[:-1], value.size(-1)], dtype=query.dtype)
    for start in range(0, length, rows):
        stop = start + rows
        output[..., start:stop, :] = whole(query[..., start:stop, :], key, value, mask)
    return output


def _layer_by_heads(
    part: MultiHeadAttention,
    whole: Callable[..., Tensor],
    hidden_states: Tensor,
    mask: Optional[Tensor] = None,
) -> Tensor:
    if hidden_states.size(1) <= LONG:
        return whole(hidden_states, mask)
    width = part.d_model // part.heads
    output = torch.empty_like(hidden_states)
    for start in range(0, part.d_model, width):
        query, key, value = (
            _projected(part, hidden_states, slice(first + start, first + start + width))
            for first in range(0, 3 * part.d_model, part.d_model)
        )
        output[..., start : start + width] = part.attention(query, key, value, mask).squeeze(1)
    return zero_where_empty(part.out_proj(output), mask)


def _projected(part: MultiHeadAttention, hidden_states: Tensor, rows: slice) -> Tensor:
    """``[B, 1, N, D]``: one head of the query, key or value."""
    bias = None if part.in_proj_bias is None else part.in_proj_bias[rows]
    return nn.functional.linear(hidden_states, part.in_proj_weight[rows], bias).unsqueeze(1)
