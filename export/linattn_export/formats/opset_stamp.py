"""Whether a graph of one opset means the same under a later stamp."""

from typing import Any

from linattn_runtime_checks.contract.errors import ExportError


def require_same_meaning(model: Any, written: int, stamped: int, where: str) -> None:
    """Raise ExportError unless every operator of ``model`` (onnx_ir) still takes what it is given.

    The exporter has no way from opset 18 to 27 that does not give up at LinearAttention. What may
    change between the two is what an operator takes: inputs, their order, attributes and their
    defaults. All that our graphs use is held against both schemas.
    """
    import onnx

    for node in model.graph.all_nodes():
        if node.domain not in ("", "ai.onnx"):
            continue
        after = onnx.defs.get_schema(node.op_type, stamped, "")
        if after.since_version <= written:
            continue
        try:
            before = onnx.defs.get_schema(node.op_type, written, "")
        except onnx.defs.SchemaError:
            continue  # new: written for the later opset
        used = len(node.inputs)
        names = [item.name for item in before.inputs[:used]]
        same_inputs = names == [item.name for item in after.inputs[:used]]
        same_attributes = all(
            name in after.attributes and after.attributes[name].default_value == item.default_value
            for name, item in before.attributes.items()
        )
        if not (same_inputs and same_attributes):
            raise ExportError(
                f"{where}: {node.op_type} changed between opset {written} and {stamped}, so the "
                "file cannot be stamped so; use `onnx_forms=['portable']` or ms"
            )
