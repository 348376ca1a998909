"""The captured program as torch.onnx translates it, without running it anew.

torch.onnx first decomposes what it has no translation for, by tracing the whole program again; that
is four fifths of the time of an export. A program that has a translation for everything comes out
as it went in, but for casts to the dtype that is there already. Those are dropped here; any
program that holds more goes torch's own way. Likewise for the pass after it; see
:func:`promotes_nothing`.
"""

import copy
import functools
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

_CAST = torch.ops.aten.to.dtype
# torch drops it by itself after this step.
_ASSERTION = torch.ops.aten._assert_tensor_metadata.default


@functools.cache
def _translated(registry: Any) -> frozenset[Any]:
    """The operators that torch.onnx has a translation for."""
    from torch.onnx._internal.exporter import _decomp

    return frozenset(_decomp.get_onnx_implemented_overloads(registry))


def needs_none(program: ExportedProgram, registry: Any) -> bool:
    """Whether every operator has a translation and none writes to its inputs."""
    known = _translated(registry)
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    operators = {target for target in targets if isinstance(target, torch._ops.OpOverload)}
    others = targets - operators  # sizes are worked out by plain Python functions
    return (
        operators - {_CAST, _ASSERTION} <= known
        and not any(operator._schema.is_mutable for operator in operators)
        and all(getattr(target, "__module__", "") == "_operator" for target in others)
        and all(node.op != "get_attr" for node in program.graph.nodes)
    )


def as_traced(program: ExportedProgram) -> ExportedProgram:
    """A copy, for the translation to change, with the casts that a trace leaves."""
    module = copy.deepcopy(program.graph_module)
    for node in list(module.graph.nodes):
        if node.target is not _CAST:
            continue
        source, dtype = node.args[:2]
        if source.meta["val"].dtype == dtype:
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
        else:
            node.target = torch.ops.aten._to_copy.default
            node.args, node.kwargs = (source,), {"dtype": dtype}
    module.recompile()
    signature = copy.deepcopy(program.graph_signature)
    for spec, value in zip(signature.output_specs, module.graph.output_node().args[0], strict=True):
        spec.arg.name = value.name
    return program._update(module, signature)


def promotes_nothing(module: GraphModule) -> bool:
    """Whether torch.onnx's pass that makes type promotion explicit would leave ``module`` as it is.

    The pass runs the whole program again on tensors without data, to look at each dtype once; they
    are noted in the program. The rules that it applies are asked here.
    """
    from torch.onnx._internal.fx.passes import type_promotion

    table = type_promotion.TypePromotionTable()
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        rule = type_promotion.get_type_promotion_rule(node, table)
        if rule is None:
            continue
        if any("val" not in argument.meta for argument in node.all_input_nodes):
            return False
        args, kwargs = pytree.tree_map_only(
            Node, lambda argument: argument.meta["val"], (node.args, dict(node.kwargs))
        )
        wanted = rule.preview_type_promotion(args, kwargs)
        arguments = [(args[i], dtype) for i, dtype in wanted.args_dtypes.items()]
        arguments += [(kwargs[name], dtype) for name, dtype in wanted.kwargs_dtypes.items()]
        if not all(_is_of(argument, dtype) for argument, dtype in arguments):
            return False
    return True


def _is_of(argument: Any, dtype: torch.dtype) -> bool:
    if isinstance(argument, torch.Tensor):
        return argument.dtype == dtype
    return isinstance(argument, float) and dtype == torch.float32
