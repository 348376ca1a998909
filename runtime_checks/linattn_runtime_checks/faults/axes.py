"""Faults of the signature, and of sizes that were frozen at capture.

Each function changes the graph in place and returns whether it found its place; a method without
a softmax has no softmax to get wrong.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.faults.editing import Graph

Plant = Callable[[Graph, Artifact], bool]


def count_frozen(graph: Graph, artifact: Artifact) -> bool:
    """A mean over tokens divides by the captured length, whatever the length is."""
    place = _sequence_input(artifact)
    if place is None:
        return False
    name, axis = place
    captured = artifact.axis("sequence").captured

    def make(graph: Graph, inner: str) -> str:
        from onnx.helper import tensor_dtype_to_np_dtype

        element = graph.model.graph.output[0].type.tensor_type.elem_type
        kind = tensor_dtype_to_np_dtype(element)
        size = graph.append("Shape", [name], start=axis, end=axis + 1)
        count = graph.append("Cast", [size], to=element)
        share = graph.append("Div", [count, graph.constant(np.array([captured], kind))])
        return graph.append("Mul", [inner, share])

    graph.after_output(make)
    return True


def loop_unrolled(graph: Graph, artifact: Artifact) -> bool:
    """A loop over chunks that ends at the captured length: later rows are never written."""
    if "sequence" not in artifact.outputs[0].axes or _sequence_input(artifact) is None:
        return False
    axis = artifact.outputs[0].axes.index("sequence")
    captured = artifact.axis("sequence").captured

    def make(graph: Graph, inner: str) -> str:
        axes = graph.constant(np.array([axis]))
        zero, end = graph.constant(np.array([0])), graph.constant(np.array([2**31 - 1]))
        edge = graph.constant(np.array([captured]))
        written = graph.append("Slice", [inner, zero, edge, axes])
        rest = graph.append("Slice", [inner, edge, end, axes])
        nothing = graph.append("Sub", [rest, rest])
        return graph.append("Concat", [written, nothing], axis=axis)

    graph.after_output(make)
    return True


def batch_frozen_inside(graph: Graph, artifact: Artifact) -> bool:
    """A reshape holds the captured batch."""
    low, high = artifact.axis("batch").declared
    for node in graph.of_type("Shape") if low != high else ():
        ends = {attribute.name: attribute.i for attribute in node.attribute}
        if ends.get("start", 0) == 0 and ends.get("end") == 1:
            captured = np.array([artifact.axis("batch").captured])
            graph.bypass(node, graph.constant(captured))
            return True
    return False


def relabelled(axis: str, make: Callable[[Artifact], Any]) -> Plant:
    """The symbol ``axis`` of inputs and outputs replaced by a number or another name."""

    def plant(graph: Graph, artifact: Artifact) -> bool:
        low, high = artifact.axis(axis).declared
        if low == high:
            return False
        new = make(artifact)
        for value in [*graph.model.graph.input, *graph.model.graph.output]:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == axis and isinstance(new, int):
                    dim.dim_value = new
                elif dim.dim_param == axis:
                    dim.dim_param = new
        return True

    return plant


def length_not_refused(graph: Graph, artifact: Artifact) -> bool:
    """A fixed artifact whose axis is a symbol again."""
    low, high = artifact.axis("sequence").declared
    if low != high:
        return False
    specs = [*artifact.inputs, *artifact.outputs]
    values = [*graph.model.graph.input, *graph.model.graph.output]
    for spec, value in zip(specs, values, strict=True):
        for axis, dim in zip(spec.axes, value.type.tensor_type.shape.dim, strict=True):
            if axis == "sequence":
                dim.dim_param = "sequence"
    return True


def output_renamed(graph: Graph, artifact: Artifact) -> bool:
    """The output has another name."""
    old = graph.model.graph.output[0].name
    for node in graph.nodes:
        for place, made in enumerate(node.output):
            if made == old:
                node.output[place] = "result"
        for place, used in enumerate(node.input):
            if used == old:
                node.input[place] = "result"
    graph.model.graph.output[0].name = "result"
    return True


def _sequence_input(artifact: Artifact) -> tuple[str, int] | None:
    """An input with the sequence axis, if that is dynamic, and the place of the axis."""
    low, high = artifact.axis("sequence").declared
    spec = next((spec for spec in artifact.inputs if "sequence" in spec.axes), None)
    return None if spec is None or low == high else (spec.name, spec.axes.index("sequence"))
