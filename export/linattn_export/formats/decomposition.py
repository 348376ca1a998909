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
from torch.fx import GraphModule

from linattn.torch_internals import (
    ASSERT_TENSOR_METADATA,
    CAST_OF_A_TRACE,
    OpOverload,
    onnx_operators,
    promoted_dtypes,
    replaced,
    schema_of,
)

_CAST = torch.ops.aten.to.dtype

_translated = functools.cache(onnx_operators)


def needs_none(program: ExportedProgram, registry: Any) -> bool:
    """Whether every operator has a translation and none writes to its inputs."""
    known = _translated(registry)
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    operators = {target for target in targets if isinstance(target, OpOverload)}
    others = targets - operators  # sizes are worked out by plain Python functions
    return (
        operators - {_CAST, ASSERT_TENSOR_METADATA} <= known  # torch drops these by itself
        and not any(schema_of(operator).is_mutable for operator in operators)
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
            node.target = CAST_OF_A_TRACE
            node.args, node.kwargs = (source,), {"dtype": dtype}
    module.recompile()
    signature = copy.deepcopy(program.graph_signature)
    for spec, value in zip(signature.output_specs, module.graph.output_node().args[0], strict=True):
        spec.arg.name = value.name
    return replaced(program, module, signature)


def promotes_nothing(module: GraphModule) -> bool:
    """Whether torch.onnx's pass that makes type promotion explicit would leave ``module`` as it is.

    The pass runs the whole program again on tensors without data, to look at each dtype once; they
    are noted in the program. The rules that it applies are asked here.
    """
    for node in module.graph.nodes:
        if node.op == "call_function":
            wanted = promoted_dtypes(node)
            if wanted is None or not all(_is_of(argument, dtype) for argument, dtype in wanted):
                return False
    return True


def _is_of(argument: Any, dtype: torch.dtype) -> bool:
    if isinstance(argument, torch.Tensor):
        return argument.dtype == dtype
    return isinstance(argument, float) and dtype == torch.float32
