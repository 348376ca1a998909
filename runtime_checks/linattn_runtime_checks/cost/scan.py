"""A loop over blocks of tokens: linear if every turn of it does the same work whatever the length.

The body of a Scan cannot be run with its tensors as outputs. But where nothing that enters a turn
grows with the length, and every operation of the body sizes its result by its operands alone, no
tensor inside grows either; and the turns are as many as the scanned tensor is long.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from linattn_runtime_checks.cost import axes
from linattn_runtime_checks.cost.axes import Polynomial

Sizes = Mapping[str, Sequence[Polynomial | None] | None]

# Their results are at most as large as a product of their operands' axes.
_SIZED_BY_OPERANDS = {
    "Add", "Cast", "Div", "Exp", "FusedMatMul", "Gemm", "Identity", "MatMul", "Mul", "Neg",
    "ReduceSum", "Reshape", "Sigmoid", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip


def scan_doubts(node: Any, name: str, sizes: Sizes) -> Iterator[str]:
    """Why the turns of a Scan may cost more the longer the sequence is; nothing if they do not.

    Args:
        node: the Scan.
        name: of it, for the messages.
        sizes: of all tensors of the graph around it, weights included.
    """
    attributes = {attribute.name: attribute for attribute in node.attribute}
    body = attributes["body"].g
    scanned = attributes["num_scan_inputs"].i
    axis = list(attributes["scan_input_axes"].ints) if "scan_input_axes" in attributes else []
    states = len(node.input) - scanned
    inside = {value.name for value in body.input} | {item.name for item in body.initializer}
    entering = dict.fromkeys(node.input[:states])
    for place, outer in enumerate(node.input[states:]):
        entering[outer] = axis[place] if axis else 0
    for inner in body.node:
        if any(attribute.HasField("g") or attribute.graphs for attribute in inner.attribute):
            yield f"{name} has a body with a body of its own ({inner.op_type})"
        elif inner.op_type not in _SIZED_BY_OPERANDS and inner.op_type != "Constant":
            yield f"{name} has {inner.op_type} in its body, which may size its result by a number"
        entering |= {outer: None for outer in inner.input if outer and outer not in inside}
        inside |= set(inner.output)
    for outer, dropped in entering.items():
        shape = sizes.get(outer)
        if shape is None or None in shape:
            yield f"{name} takes {outer}, whose size is not known"
            continue
        turn = [size for place, size in enumerate(shape) if place != dropped and size is not None]
        if any(axes.degree(size) for size in turn):
            yield f"{name} takes in each turn all of {outer}, which grows with the length"
