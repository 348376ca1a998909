"""Opset 18, which the exporter writes, to opset 17.

Between the two, the reductions moved their axes from an attribute to an input, and Split gained
``num_outputs``, and Pad axes; everything else that our graphs use is the same operator in both.
"""

from typing import Any

from linattn_runtime_checks.contract.errors import ExportError

_MOVED_AXES = {
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSumSquare",
}  # fmt: skip
_PAD_WITH_AXES = 4  # inputs


def to_opset_17(model: Any, where: str) -> None:
    """Rewrite ``model`` (onnx_ir) in place.

    Args:
        model: at opset 18.
        where: what it is, for messages.

    Raises:
        ExportError: it uses an operator that opset 17 does not have in this form.
    """
    import onnx
    import onnx_ir as ir

    for node in model.graph.all_nodes():
        if node.op_type in _MOVED_AXES and len(node.inputs) > 1:
            axes = node.inputs[1].const_value
            if axes is None:
                raise ExportError(
                    f"{where}: the axes of {node.name} are not constant; use opset 18"
                )
            node.attributes["axes"] = ir.AttrInt64s("axes", axes.numpy().tolist())
            node.attributes.pop("noop_with_empty_axes", None)
            node.resize_inputs(1)
        elif node.op_type == "Split":
            node.attributes.pop("num_outputs", None)
        elif node.op_type == "Pad" and len(node.inputs) < _PAD_WITH_AXES:
            continue
        elif node.domain == "":
            since = onnx.defs.get_schema(node.op_type, 18, "").since_version
            if since > 17:
                raise ExportError(f"{where}: {node.op_type} is new in opset {since}; use opset 18")
    _drop_unused(model)
    model.graph.opset_imports[""] = 17


def _drop_unused(model: Any) -> None:
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del model.graph.initializers[name]
