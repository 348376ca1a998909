"""A recurrence as one LinearAttention node: its translation, and the stamp of its opset.

Source: the specification of ONNX's LinearAttention-27; ONNX Runtime's com.microsoft operator takes
the same inputs and attributes.
"""

from collections.abc import Callable
from typing import Any

from linattn_export.formats.opset_stamp import require_same_meaning
from linattn_export.options.onnx_forms import Form
from linattn_runtime_checks.contract.errors import ExportError

OP = "LinearAttention"
_STANDARD = 27
_RULES = {
    (False, False): "linear",
    (True, False): "gated",
    (False, True): "delta",
    (True, True): "gated_delta",
}


def translations() -> dict[Any, Callable[..., Any]]:
    """For torch.onnx: the operator of linattn.recurrent.operator as one node of the standard."""
    import torch

    return {torch.ops.linattn.recurrence.default: _translated}


def _translated(
    query: Any, key: Any, value: Any, decay: Any, beta: Any, state: Any, scale: float
) -> Any:
    from onnxscript import opset18
    from onnxscript.values import Opset

    op: Any = opset18
    heads, width = query.shape[2], value.shape[3]

    def packed(x: Any) -> Any:
        return op.Reshape(x, op.Constant(value_ints=[0, 0, -1]))

    if decay is not None and len(decay.shape) == 4:
        decay = packed(decay)
    output, present = getattr(Opset("", _STANDARD), OP)(
        packed(query),
        packed(key),
        packed(value),
        state,
        decay,
        beta,
        q_num_heads=heads,
        kv_num_heads=heads,
        update_rule=_RULES[decay is not None, beta is not None],
        scale=scale,  # always explicit: 0, the default, means 1 / sqrt(D)
    )
    return op.Reshape(output, op.Constant(value_ints=[0, 0, heads, width])), present


def settle(model: Any, form: Form, opset: int, where: str) -> None:
    """Put the nodes of ``model`` (onnx_ir) in the domain of ``form``, and stamp its opsets.

    Raises:
        ExportError: no such node is there, or another operator means something else in ``opset``.
    """
    nodes = [node for node in model.graph.all_nodes() if node.op_type == OP]
    if not nodes:
        raise ExportError(f"{where}: the captured program holds no recurrence to write as one node")
    for node in nodes:
        node.domain = form.domain
        node.version = None
    if form.domain:
        model.opset_imports[form.domain] = 1
    if form.opset is not None:
        require_same_meaning(model, model.opset_imports[""], opset, where)
    model.opset_imports[""] = opset
