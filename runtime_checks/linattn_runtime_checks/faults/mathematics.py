"""Faults of the mathematics and of the weights.

Each function changes the graph in place and returns whether it found its place; a method without
a softmax has no softmax to get wrong.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.faults.editing import Graph

_SMALL = 1e-3  # what is added as an epsilon is below
Plant = Callable[[Graph, Artifact], bool]


def softmax_axis(graph: Graph, artifact: Artifact) -> bool:
    """The last softmax over the other of the two last axes."""
    found = graph.of_type("Softmax")
    for attribute in found[-1].attribute if found else ():
        attribute.i = -2 if attribute.i == -1 else -1
    return bool(found)


def scale_missing(graph: Graph, artifact: Artifact) -> bool:
    """The factor 1/sqrt(D) before a softmax is 1."""
    for node in graph.of_type("Mul"):
        for name in node.input:
            number = graph.scalar(name)
            if number is not None and 0 < number < 1 and graph.of_type("Softmax"):
                graph.set_weight(name, np.ones_like(graph.weights()[name]))
                return True
    return False


def query_ignored(graph: Graph, artifact: Artifact) -> bool:
    """All queries are zero."""
    return _scale_part(graph, 0, 0.0)


def key_and_value_swapped(graph: Graph, artifact: Artifact) -> bool:
    """Keys where values belong, and the other way round."""
    names = [item.name for item in graph.model.graph.input]
    if {"key", "value"} <= set(names):
        other = {"key": "value", "value": "key"}
        for node in graph.nodes:
            for place, used in enumerate(node.input):
                node.input[place] = other.get(used, used)
        return True
    return _change_projections(graph, lambda q, k, v: (q, v, k))


def normaliser_dropped(graph: Graph, artifact: Artifact) -> bool:
    """The numerator is returned."""
    node = _normaliser(graph)
    if node is not None:
        graph.bypass(node, node.input[0])
    return node is not None


def eps_dropped(graph: Graph, artifact: Artifact) -> bool:
    """Nothing is added to the normaliser."""
    for node in graph.of_type("Add"):
        for name in node.input:
            number = graph.scalar(name)
            if number is not None and 0 < number < _SMALL:
                graph.set_weight(name, np.zeros_like(graph.weights()[name]))
                return True
    return False


def head_ignored(graph: Graph, artifact: Artifact) -> bool:
    """The output projection does not see the last head."""
    name = _output_projection(graph)
    if name is None:
        return False
    value = graph.weights()[name].copy()
    value[:, -max(len(value) // 8, 1) :] = 0
    graph.set_weight(name, value)
    return True


def weight_transposed(graph: Graph, artifact: Artifact) -> bool:
    """The output projection transposed: its shape does not give it away."""
    name = _output_projection(graph)
    if name is None:
        return False
    graph.set_weight(name, graph.weights()[name].T)
    return True


def matrix_moved(graph: Graph, artifact: Artifact) -> bool:
    """The output projection, or Linformer's E, times 1.001."""
    name = _output_projection(graph) or _largest_matrix(graph)
    if name is None:
        return False
    value = graph.weights()[name]
    graph.set_weight(name, value * value.dtype.type(1.001))
    return True


def weight_moved(factor: float) -> Plant:
    """One weight times ``factor``: the largest in the first row of a weight matrix."""

    def plant(graph: Graph, artifact: Artifact) -> bool:
        weights = graph.weights()
        name = _output_projection(graph) or _largest_matrix(graph)
        if name is None:
            return False
        value = weights[name].copy()
        # A row of Linformer's E belongs to one token: of the first, which every input has.
        place: tuple[int, ...] = (0, int(np.abs(value[0]).argmax()))
        if value.ndim > 2:  # in the middle of a convolution's window, which is the token itself
            place = (0, *(size // 2 for size in value.shape[1:]))
        value[place] *= value.dtype.type(factor)
        graph.set_weight(name, value)
        return True

    return plant


def projections_swapped(graph: Graph, artifact: Artifact) -> bool:
    """Linformer's E where F belongs, and the other way round."""
    rank, longest = artifact.config.get("rank"), artifact.config.get("max_length")
    if artifact.method != "linformer":
        return False
    shapes = ((longest, rank), (rank, longest), (artifact.axis("sequence").declared[1], rank))
    found = [(name, value) for name, value in graph.weights().items() if value.shape in shapes]
    if len(found) != 2:
        return False
    (first, one), (second, other) = found
    graph.set_weight(first, other)
    graph.set_weight(second, one)
    return True


def bfloat16_products(graph: Graph, artifact: Artifact) -> bool:
    """Every matrix product of activations sees 8 bits of mantissa."""
    from onnx import TensorProto, helper

    weights = graph.weights()
    products = [
        node for node in graph.of_type("MatMul", "Gemm") if not set(node.input) & set(weights)
    ]
    element = graph.model.graph.output[0].type.tensor_type.elem_type
    for node in products:
        for place, name in enumerate(list(node.input)):
            index = list(graph.nodes).index(node)
            coarse = graph.insert(index, "Cast", [name], to=TensorProto.BFLOAT16)
            # The sums of half-precision artifacts are float32: cast back to what the product takes.
            back = TensorProto.FLOAT if element == TensorProto.FLOAT16 else element
            node.input[place] = graph.insert(index + 1, "Cast", [coarse], to=back)
    _ = helper
    return bool(products)


def exponential_approximated(graph: Graph, artifact: Artifact) -> bool:
    """Every Softmax and Sigmoid with (1 + x / 256) ** 256 for exp(x).

    Such a kernel of a runtime would be told from a wrong file; here it is the file.
    """
    found = graph.of_type("Softmax", "Sigmoid")
    if artifact.dtype != "float32" or not found:
        return False
    for node in found:
        (name,) = node.input
        if node.op_type == "Softmax":
            axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
            axes = graph.constant(np.array([axis], np.int64))
            largest = _before(graph, node, "ReduceMax", name, axes)
            part = _exponential(graph, node, _before(graph, node, "Sub", name, largest))
            whole = _before(graph, node, "ReduceSum", part, axes)
        else:
            part = graph.constant(np.array(1, np.float32))
            minus = _before(graph, node, "Neg", name)
            whole = _before(graph, node, "Add", part, _exponential(graph, node, minus))
        graph.bypass(node, _before(graph, node, "Div", part, whole))
    return True


def _exponential(graph: Graph, node: Any, name: str) -> str:
    one, many, none = (graph.constant(np.array(number, np.float32)) for number in (1, 256, 0))
    step = _before(graph, node, "Add", one, _before(graph, node, "Div", name, many))
    return _before(graph, node, "Pow", _before(graph, node, "Max", step, none), many)


def _before(graph: Graph, node: Any, op: str, *inputs: str) -> str:
    """A new node right before ``node``; the name of its output."""
    return graph.insert(list(graph.nodes).index(node), op, inputs)


def _scale_part(graph: Graph, part: int, factor: float) -> bool:
    """Multiply queries (0), keys (1) or values (2) by ``factor``."""
    name = ("query", "key", "value")[part]
    if name in [item.name for item in graph.model.graph.input]:
        element = np.float16 if _is_half(graph, name) else np.float32

        def make(graph: Graph, index: int, source: str) -> str:
            number = graph.constant(np.array(factor, element))
            return graph.insert(index, "Mul", [source, number])

        graph.before_users(name, make)
        return True

    def change(*parts: NDArray[Any]) -> list[NDArray[Any]]:
        return [w * w.dtype.type(factor) if i == part else w for i, w in enumerate(parts)]

    return _change_projections(graph, change)


def _is_half(graph: Graph, name: str) -> bool:
    from onnx import TensorProto

    item = next(item for item in graph.model.graph.input if item.name == name)
    return bool(item.type.tensor_type.elem_type == TensorProto.FLOAT16)


def _change_projections(graph: Graph, change: Callable[..., Sequence[NDArray[Any]]]) -> bool:
    """Change the weights ``[M, M]`` that make queries, keys and values, of every layer.

    The exporter leaves a large packed weight ``[3 M, M]`` whole and cuts it up in the graph; a
    small one comes as three, and each layer's output projection is the next square one.
    """
    weights = graph.weights()
    packed = [n for n, w in weights.items() if w.ndim == 2 and w.shape[0] == 3 * w.shape[1]]
    for name in packed:
        graph.set_weight(name, np.concatenate(change(*np.split(weights[name], 3))))
    if packed:
        return True
    used = [node.input[1] for node in graph.of_type("Gemm") if node.input[1] in weights]
    square = [name for name in used if weights[name].shape[0] == weights[name].shape[1]]
    for start in range(0, len(square) - 3, 4):
        names = square[start : start + 3]
        for name, value in zip(names, change(*(weights[n] for n in names)), strict=True):
            graph.set_weight(name, value)
    return len(square) > 3


def _output_projection(graph: Graph) -> str | None:
    """The last square weight matrix ``[out, in]`` that a product uses."""
    weights = graph.weights()
    for node in reversed(graph.of_type("MatMul", "Gemm")):
        for name in node.input:
            value = weights.get(name)
            if value is not None and value.ndim == 2 and value.shape[0] == value.shape[1]:
                return str(name)
    return None


def _largest_matrix(graph: Graph) -> str | None:
    matrices = {n: w for n, w in graph.weights().items() if w.ndim >= 2 and w.dtype.kind == "f"}
    return max(matrices, key=lambda name: matrices[name].size, default=None)


def _normaliser(graph: Graph) -> Any | None:
    """The last division by a sum that an Add or a Clip keeps from zero.

    One whose sum is of products goes before one by the number of tokens, which is a mean.
    """
    found = [
        node
        for node in reversed(graph.of_type("Div"))
        if (divisor := graph.maker(node.input[1])) is not None
        and divisor.op_type in ("Add", "Clip", "Cast")
    ]
    sums = [node for node in found if graph.comes_from_a(node.input[1], "MatMul", "Gemm")]
    return next(iter(sums or found), None)
