"""Faults of the key padding mask.

Each function changes the graph in place and returns whether it found its place; a method without
a softmax has no softmax to get wrong.
"""

from collections.abc import Callable

import numpy as np

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.faults.editing import Graph


def mask_ignored(graph: Graph, artifact: Artifact) -> bool:
    """Every token counts as real."""

    def make(graph: Graph, index: int, name: str) -> str:
        other = graph.insert(index, "Not", [name])
        return graph.insert(index + 1, "Or", [name, other])

    return _on_mask(graph, make)


def mask_inverted(graph: Graph, artifact: Artifact) -> bool:
    """True means padding."""
    return _on_mask(graph, lambda graph, index, name: graph.insert(index, "Not", [name]))


def mask_off_by_one(graph: Graph, artifact: Artifact) -> bool:
    """The mask is shifted by one token, the last one in front."""

    def make(graph: Graph, index: int, name: str) -> str:
        axis, zero = graph.constant(np.array([1])), graph.constant(np.array([0]))
        last, end = graph.constant(np.array([-1])), graph.constant(np.array([2**31 - 1]))
        tail = graph.insert(index, "Slice", [name, last, end, axis])
        head = graph.insert(index + 1, "Slice", [name, zero, last, axis])
        return graph.insert(index + 2, "Concat", [tail, head], axis=1)

    return _on_mask(graph, make)


def mask_dropped_alone(graph: Graph, artifact: Artifact) -> bool:
    """Every token counts as real where the batch holds one sequence."""
    if artifact.axis("batch").declared[0] > 1:
        return False

    def make(graph: Graph, index: int, name: str) -> str:
        one = graph.constant(np.array([1]))
        size = graph.insert(index, "Shape", [name], start=0, end=1)
        alone = graph.insert(index + 1, "Equal", [size, one])
        return graph.insert(index + 2, "Or", [name, alone])

    return artifact.axis("batch").declared[1] > 1 and _on_mask(graph, make)


def holes_filled(graph: Graph, artifact: Artifact) -> bool:
    """Padding between two real tokens counts as real; what is padded on one side does not."""
    from onnx import TensorProto

    def make(graph: Graph, index: int, name: str) -> str:
        axis, zero = graph.constant(np.array(1)), graph.constant(np.array(0.0, np.float32))
        number = graph.insert(index, "Cast", [name], to=TensorProto.FLOAT)
        before = graph.insert(index + 1, "CumSum", [number, axis])
        after = graph.insert(index + 2, "CumSum", [number, axis], reverse=1)
        seen = graph.insert(index + 3, "Mul", [before, after])
        return graph.insert(index + 4, "Greater", [seen, zero])

    return _on_mask(graph, make)


def mask_on_value_only(graph: Graph, artifact: Artifact) -> bool:
    """The keys of padding still enter the weights and the normaliser."""
    mask = _mask_name(graph)
    if mask is None:
        return False
    for node in graph.of_type("Where"):
        kept = graph.maker(node.input[2])
        # What is looked up in a table is masked for itself: padding is no number of a row.
        table = kept.op_type == "Gather" if kept is not None else _is_whole(graph, node.input[2])
        if graph.comes_from(node.input[0], mask) and not table:
            graph.bypass(node, node.input[2])
            return True
    return False


def _mask_name(graph: Graph) -> str | None:
    from onnx import TensorProto

    for item in graph.model.graph.input:
        if item.type.tensor_type.elem_type == TensorProto.BOOL:
            return str(item.name)
    return None


def _is_whole(graph: Graph, name: str) -> bool:
    """Whether ``name`` is an input of whole numbers."""
    from onnx import TensorProto

    return any(
        item.name == name and item.type.tensor_type.elem_type == TensorProto.INT64
        for item in graph.model.graph.input
    )


def _on_mask(graph: Graph, make: Callable[[Graph, int, str], str]) -> bool:
    name = _mask_name(graph)
    if name is not None:
        graph.before_users(name, make)
    return name is not None
