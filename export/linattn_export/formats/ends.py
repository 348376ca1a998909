"""Inputs and outputs of an ONNX graph: under the promised names, and each a value of its own."""

from collections.abc import Sequence
from typing import Any


def name_ends(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Name the ends of ``model`` (onnx_ir), in place.

    torch.onnx gives a value one name, also where it is two outputs, or an input and an output, or
    a weight and an output. Such an output becomes a copy.
    """
    import onnx_ir as ir

    graph = model.graph
    weights = {id(value) for value in graph.initializers.values()}
    taken = {id(value) for value in graph.inputs} | weights
    for place, value in enumerate(list(graph.outputs)):
        if id(value) in taken:
            node = ir.node("Identity", inputs=[value])
            copied = node.outputs[0]
            copied.shape, copied.type = value.shape, value.type
            graph.append(node)
            graph.outputs[place] = copied
        taken.add(id(value))
    wanted = {
        id(value): name
        for value, name in zip([*graph.inputs, *graph.outputs], [*inputs, *outputs], strict=True)
    }
    within = [*graph.initializers.values(), *(v for n in graph.all_nodes() for v in n.outputs)]
    names = set(wanted.values()) | {value.name for value in within}
    for value in within:
        if id(value) not in wanted and value.name in wanted.values():
            number = 0
            while (name := f"{value.name}_{number}") in names:
                number += 1
            names.add(name)
            value.name = name
    ends = {id(value): value for value in [*graph.inputs, *graph.outputs]}
    for number, value in enumerate(ends.values()):  # two may exchange their names
        value.name = f"linattn end {number}"
    for key, value in ends.items():
        value.name = wanted[key]
