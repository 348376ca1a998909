"""The same attention in pieces, for sequences whose whole scores would not fit into memory.

Heads in turn is another module, and so another artifact: for lengths at which the scores of all
heads are gigabytes. Rows of queries are for runs in PyTorch only, and change no artifact: no row
of the output depends on another query, so a run in blocks of rows does for each row what the whole
run does. Only the order in which a matrix product adds up may differ between the two, as it does
between two releases of a BLAS; that is rounding in the last place.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.methods import METHODS
from linattn.multihead import MultiHeadAttention

MOST_SCORES = 2**30
"""Bytes of float32 scores of one sequence that an artifact may hold at once."""
BLOCK_SCORES = 2**26
"""Bytes of scores of one block of query rows."""
BLOCK_TOKENS = 8192
"""Query rows of a layer in one block, whatever the method."""
_FLOAT32 = 4


class HeadsInTurn(nn.Module):
    """A core whose heads do not depend on each other, ``at_once`` of them at a time."""

    def __init__(self, core: nn.Module, at_once: int) -> None:
        super().__init__()
        self.core = core
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
        if at_once >= heads:
            continue
        for name, child in list(parent.named_children()):
            if _quadratic(child):
                setattr(parent, name, HeadsInTurn(child, at_once))


@contextmanager
def in_rows(module: nn.Module) -> Iterator[None]:
    """Within it, attention in ``module`` whose query rows are independent runs in blocks of them.

    Short sequences fit into one block and run as they are.
    """
    with ExitStack() as stack:
        for part in module.modules():
            if _quadratic(part):
                stack.enter_context(_replaced(part, _core_in_rows))
            elif isinstance(part, MultiHeadAttention) and _independent(part.method_name):
                stack.enter_context(_replaced(part, _layer_in_rows))
        yield


def _quadratic(part: nn.Module) -> bool:
    return any(
        record.capabilities.cost == "quadratic" and type(part) is record.module
        for record in METHODS.values()
    )


def _independent(method: str) -> bool:
    """Queries may then have another length than keys, and each gives a row of its own."""
    return METHODS[method].capabilities.cross_attention


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
            del part.forward


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


def _layer_in_rows(
    part: MultiHeadAttention,
    whole: Callable[..., Tensor],
    hidden_states: Tensor,
    mask: Optional[Tensor] = None,
) -> Tensor:
    length = hidden_states.size(1)
    if length <= BLOCK_TOKENS:
        return whole(hidden_states, mask)
    key, value = _heads(part, hidden_states, 1), _heads(part, hidden_states, 2)
    output = torch.empty_like(hidden_states)
    for start in range(0, length, BLOCK_TOKENS):
        stop = start + BLOCK_TOKENS
        query = _heads(part, hidden_states[:, start:stop], 0)
        output[:, start:stop] = part._joined(part.attention(query, key, value, mask), mask)
    return output


def _heads(part: MultiHeadAttention, hidden_states: Tensor, which: int) -> Tensor:
    """Heads ``[B, H, N, D]`` of the query (0), key (1) or value (2)."""
    batch, length, width = hidden_states.shape
    return part._project(hidden_states.reshape(batch * length, width), which, batch, length)
