"""The recurrence as one operator, for ONNX files that hold it as one node.

Inside :func:`as_operator` a module calls ``torch.ops.linattn.recurrence`` where it otherwise
spells out the products; a captured program then has one node, which an exporter translates.
It computes the same when it is run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

import torch
from torch import Tensor

from linattn.recurrent.chunk import chunked

_ONE_NODE = [False]


@contextmanager
def as_operator() -> Iterator[None]:
    """Whatever is captured in here holds the recurrence as one operator."""
    before = _ONE_NODE[0]
    _ONE_NODE[0] = True
    try:
        yield
    finally:
        _ONE_NODE[0] = before


@torch.jit.unused
def is_wanted() -> bool:
    """Whether the caller is inside :func:`as_operator`."""
    return _ONE_NODE[0]


@torch.library.custom_op("linattn::recurrence", mutates_args=())
def recurrence_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Optional[Tensor],
    beta: Optional[Tensor],
    state: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """As :func:`linattn.recurrent.chunked`, with as many heads in all and a state."""
    return chunked(query, key, value, decay, beta, state, scale)


@recurrence_operator.register_fake
def _shapes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Optional[Tensor],
    beta: Optional[Tensor],
    state: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(value), torch.empty_like(state)
