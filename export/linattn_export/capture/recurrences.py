"""``nn.GRU``, ``nn.LSTM`` and ``nn.RNN`` as one operator of any length.

torch.export keeps the operator, but works out the sizes of what it returns by running it, token by
token, which fixes the length. Inside :func:`kept` the sizes are said outright.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from linattn.torch_internals import forget_dispatches

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_aten = torch.ops.aten


def _one_state(x: Tensor, state: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _output(x, state, rest[-2]), state.new_empty(state.shape)


def _two_states(x: Tensor, states: list[Tensor], *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    hidden, cell = states
    return _output(x, hidden, rest[-2]), hidden.new_empty(hidden.shape), cell.new_empty(cell.shape)


def _output(x: Tensor, hidden: Tensor, bidirectional: bool) -> Tensor:
    return x.new_empty((*x.shape[:2], hidden.shape[-1] * (2 if bidirectional else 1)))


SIZES: dict[Any, Callable[..., Any]] = {
    _aten.gru.input: _one_state,
    _aten.rnn_tanh.input: _one_state,
    _aten.rnn_relu.input: _one_state,
    _aten.lstm.input: _two_states,
}
"""Operators, to what says the sizes of their outputs."""


@contextmanager
def kept() -> Iterator[None]:
    """Whatever is captured, or traced anew, in here keeps these operators."""
    before = {operator: dict(operator.py_kernels) for operator in SIZES}
    try:
        for operator, sizes in SIZES.items():
            operator.py_kernels.pop(_COMPOSITE, None)
            operator.py_impl(_COMPOSITE)(sizes)
            forget_dispatches(operator)
        yield
    finally:
        for operator, kernels in before.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            forget_dispatches(operator)
