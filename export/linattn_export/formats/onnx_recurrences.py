"""PyTorch's recurrent operators as ONNX's, layer by layer.

Source: the specifications of GRU-14, LSTM-14 and RNN-14. Both hold the gates of a layer in one
matrix, in another order; a bias of PyTorch is two, which ONNX adds up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    operator: str
    gates: tuple[int, ...]
    """Of PyTorch, in the order of ONNX."""
    attributes: dict[str, Any]
    activation: str | None = None


_GRU = _Cell(operator="GRU", gates=(1, 0, 2), attributes={"linear_before_reset": 1})
_LSTM = _Cell(operator="LSTM", gates=(0, 3, 1, 2), attributes={})
_TANH = _Cell(operator="RNN", gates=(0,), attributes={}, activation="Tanh")
_RELU = _Cell(operator="RNN", gates=(0,), attributes={}, activation="Relu")


def translations() -> dict[Any, Callable[..., Any]]:
    """For torch.onnx: an operator, to the function that writes its nodes."""
    return {
        _aten.gru.input: _gru,
        _aten.lstm.input: _lstm,
        _aten.rnn_tanh.input: _tanh,
        _aten.rnn_relu.input: _relu,
    }


def projected(program: ExportedProgram) -> Any | None:
    """The first LSTM whose hidden state is a projection, which ONNX does not have."""
    for node in program.graph.nodes:
        if node.target is _aten.lstm.input:
            hidden, cell = (state.meta["val"].shape[-1] for state in node.args[1])
            if hidden != cell:
                return node
    return None


# torch.onnx reads the parameters of an operator off the signature.
def _gru(
    input: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any, train: Any,
    bidirectional: Any, batch_first: Any,
) -> Any:  # fmt: skip
    return _layers(_GRU, input, [hx], params, has_biases, num_layers, bidirectional, batch_first)


def _lstm(
    input: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any, train: Any,
    bidirectional: Any, batch_first: Any,
) -> Any:  # fmt: skip
    return _layers(_LSTM, input, hx, params, has_biases, num_layers, bidirectional, batch_first)


def _tanh(
    input: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any, train: Any,
    bidirectional: Any, batch_first: Any,
) -> Any:  # fmt: skip
    return _layers(_TANH, input, [hx], params, has_biases, num_layers, bidirectional, batch_first)


def _relu(
    input: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any, train: Any,
    bidirectional: Any, batch_first: Any,
) -> Any:  # fmt: skip
    return _layers(_RELU, input, [hx], params, has_biases, num_layers, bidirectional, batch_first)


def _layers(
    cell: _Cell,
    x: Any,
    states: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    from onnxscript import opset18

    op: Any = opset18
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    hidden = params[1].shape[1]
    attributes = dict(cell.attributes)
    if cell.activation is not None:
        attributes["activations"] = [cell.activation] * directions
    order = [gate * hidden + row for gate in cell.gates for row in range(hidden)]

    def ordered(matrix: Any) -> Any:
        if len(cell.gates) == 1:
            return matrix
        return op.Gather(matrix, op.Constant(value_ints=order), axis=0)

    def of_all(parts: list[Any]) -> Any:
        one = [op.Unsqueeze(part, op.Constant(value_ints=[0])) for part in parts]
        return op.Concat(*one, axis=0) if len(one) > 1 else one[0]

    def of_layer(state: Any, layer: int) -> Any:
        if layers == 1:
            return state
        ends = [op.Constant(value_ints=[(layer + i) * directions]) for i in (0, 1)]
        return op.Slice(state, *ends, op.Constant(value_ints=[0]))

    if batch_first:
        x = op.Transpose(x, perm=[1, 0, 2])
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(layers):
        start = layer * directions * each
        own = [params[start + i * each : start + (i + 1) * each] for i in range(directions)]
        bias = None
        if has_biases:
            bias = of_all([op.Concat(ordered(part[2]), ordered(part[3]), axis=0) for part in own])
        found, *present = getattr(op, cell.operator)(
            x,
            of_all([ordered(part[0]) for part in own]),
            of_all([ordered(part[1]) for part in own]),
            bias,
            None,
            *(of_layer(state, layer) for state in states),
            hidden_size=hidden,
            direction="bidirectional" if bidirectional else "forward",
            **attributes,
        )
        for kept, state in zip(last, present, strict=False):
            kept.append(state)
        # [sequence, directions, batch, hidden]
        ends = layer == layers - 1 and batch_first
        x = op.Transpose(found, perm=[2, 0, 1, 3] if ends else [0, 2, 1, 3])
        x = op.Reshape(x, op.Constant(value_ints=[0, 0, directions * hidden]))
    return x, *(op.Concat(*kept, axis=0) if layers > 1 else kept[0] for kept in last)
