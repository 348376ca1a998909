"""Everything that linattn takes from inside of torch, in one place.

What is here has no promise from torch to stay: a name with an underscore, or an attribute of one of
its objects. No other file of ours may use such; ``test_torch_internals.py`` sees to that, and
shows of each part that it does what is relied on. A new release of torch is work in this file; the
suites ran with 2.13.0 and 2.12.1.
"""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator, OpOverload
from torch.jit._trace import TopLevelTracedModule, TracedModule
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

if TYPE_CHECKING:
    from torch.export import ExportedProgram, ExportGraphSignature
    from torch.fx import GraphModule, Node

__all__ = [
    # Operators.
    "ASSERT_SCALAR",
    "ASSERT_TENSOR_METADATA",
    "CAST_OF_A_TRACE",
    "HigherOrderOperator",
    "OpOverload",
    "forget_dispatches",
    "schema_of",
    "scan",
    # Calls that are watched.
    "TorchDispatchMode",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "without_onednn",
    # Modules.
    "TRACED",
    "buffers_of",
    "children_of",
    "compiled_call_of",
    "forward_schema",
    "hooks_of",
    "inside_compiled",
    "is_captured",
    "is_compiled",
    "parameters_of",
    "set_compiled_call",
    "unsaved_buffers_of",
    "with_own_parameters",
    # Capture.
    "CAPTURE_IMPORTS",
    "HIGHER_ORDER_FILES",
    "forget_compiled",
    "forget_guards",
    "import_compiler",
    "python_text",
    "range_of",
    "replaced",
    "sizes_may_be_one",
    "told_of_guards",
    # Formats.
    "ONNX_IMPORTS",
    "PT2_IMPORTS",
    "PT2_LOGGER",
    "onnx_exporter",
    "onnx_operators",
    "onnx_registry",
    "promoted_dtypes",
]

Module = TypeVar("Module", bound=nn.Module)

ASSERT_SCALAR = torch.ops.aten._assert_scalar.default
"""What a captured program checks of its sizes at every run."""
ASSERT_TENSOR_METADATA = torch.ops.aten._assert_tensor_metadata.default
"""What a captured program checks before a cast: dtype and device."""
CAST_OF_A_TRACE = torch.ops.aten._to_copy.default
"""What ``x.to(dtype)`` is once torch has traced a program anew."""
TRACED = (TracedModule, TopLevelTracedModule)
"""The classes of what torch.jit.trace makes."""
HIGHER_ORDER_FILES = ("torch/_higher_order_ops/", "torch/nn/attention/flex_attention.py")
"""Where the operators that take functions are: torch.cond, scan, flex_attention."""
CAPTURE_IMPORTS = (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch._inductor.output_code",
    "torch.export._trace",
    "torch.export._unlift",
    "torch._export.non_strict_utils",
)
"""What torch.export imports in its midst."""
PT2_IMPORTS = ("torch._export.serde.serialize", "torch.export.pt2_archive._package")
"""What torch.export.save and torch.export.load import in their midst."""
PT2_LOGGER = "torch._export.serde.serialize"
"""Through which torch.export.save says what it does."""
ONNX_IMPORTS = ("torch.onnx._internal.exporter._core",)
"""What torch.onnx.export imports in its midst, of torch."""


def scan(turn: Callable[..., Any], state: Any, chunks: Any) -> Any:
    """A loop over the first axis of ``chunks`` as one operator, whatever its length.

    ``turn(state, chunk)`` returns the next state and what is stacked.
    """
    from torch._higher_order_ops.scan import scan as scan_of_torch

    return scan_of_torch(turn, state, chunks)


def schema_of(operator: OpOverload) -> Any:
    """The schema of an operator: its arguments, and which of them it writes to."""
    return operator._schema


def forget_dispatches(operator: OpOverload) -> None:
    """Have torch look up anew what implements ``operator``, after its kernels were changed."""
    operator._dispatch_cache.clear()


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    """Run without oneDNN; the public switch warns of TF32."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def children_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """The table of parts by name, itself: what is put into it is in the module."""
    return module._modules


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """The table of the module's own parameters, itself."""
    return module._parameters


def with_own_parameters(module: Module) -> Module:
    """A shallow copy whose table of parameters is its own: what is put there is not in both."""
    other = copy.copy(module)
    other._parameters = dict(module._parameters)
    return other


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """The table of the module's own buffers, itself."""
    return module._buffers


def unsaved_buffers_of(module: nn.Module) -> set[str]:
    """The names of buffers that no state dict holds."""
    return module._non_persistent_buffers_set


def hooks_of(module: nn.Module) -> tuple[MutableMapping[int, Any], ...]:
    """The tables of hooks, themselves: before and after the call, and of gradients."""
    return (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._backward_pre_hooks,
        module._backward_hooks,
    )


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile made it; asked by name, for its class takes seconds to import."""
    return type(module).__module__.startswith("torch._dynamo") and hasattr(module, "_orig_mod")


def inside_compiled(module: Any) -> nn.Module:
    """The module that torch.compile was given."""
    inside: nn.Module = module._orig_mod
    return inside


def compiled_call_of(module: nn.Module) -> Any:
    """What ``module.compile()`` left to be called; None without it."""
    return module.__dict__.get("_compiled_call_impl")


def set_compiled_call(module: nn.Module, call: Any) -> None:
    """Put back, or take away with None, what ``module.compile()`` left."""
    module._compiled_call_impl = call


def forward_schema(module: torch.jit.ScriptModule) -> Any:
    """The schema of ``forward`` of a scripted or traced module."""
    return module._c._get_method("forward").schema


def is_captured(module: nn.Module) -> bool:
    """Whether it is the module of an ExportedProgram."""
    return hasattr(module, "_guards_fn") or hasattr(module, "_in_spec")


def import_compiler() -> None:
    """Import what the first operator under a dispatch mode would import in its midst."""
    import torch._dynamo  # noqa: F401


def forget_compiled() -> None:
    """Let the compiler forget what it has seen: another program would be compared with it."""
    import torch._dynamo

    torch._dynamo.reset()


def sizes_may_be_one() -> contextlib.AbstractContextManager[None]:
    """Capture without deciding that a size which comes out of another is not 1."""
    from torch.fx.experimental import _config

    patch: Any = _config.patch  # type: ignore[attr-defined]
    found: contextlib.AbstractContextManager[None] = patch(backed_size_oblivious=True)
    return found


@contextlib.contextmanager
def told_of_guards(tell: Callable[[str, Any], None]) -> Iterator[None]:
    """Have every guard of a capture told as it is made: a prefix of its log line, a condition."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    original = ShapeEnv._log_guard

    def told(env: Any, prefix: str, condition: Any, forcing_spec: bool) -> None:
        tell(prefix, condition)
        original(env, prefix, condition, forcing_spec=forcing_spec)

    ShapeEnv._log_guard = told  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ShapeEnv._log_guard = original  # type: ignore[method-assign]


def forget_guards(program: "ExportedProgram") -> None:
    """Drop what the program's module would check of its inputs beside its graph."""
    program._guards_code = []


def range_of(low: int, high: int) -> Any:
    """A range of a symbol, as ``ExportedProgram.range_constraints`` holds them."""
    from torch.utils._sympy.value_ranges import ValueRanges

    found: Any = ValueRanges(low, high)
    return found


def python_text(condition: Any) -> str:
    """A condition on symbols as Python writes it."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(condition))


def replaced(
    program: "ExportedProgram", module: "GraphModule", signature: "ExportGraphSignature"
) -> "ExportedProgram":
    """The program with another graph and signature, and everything else as it was."""
    return program._update(module, signature)


def onnx_registry() -> Any:
    """The table of operators that torch.onnx translates, read anew; needs onnxscript."""
    from torch.onnx._internal.exporter import _registration

    return _registration.ONNXRegistry.from_torchlib()


def onnx_operators(registry: Any) -> frozenset[Any]:
    """The operators that a table of torch.onnx has a translation for."""
    from torch.onnx._internal.exporter import _decomp

    return frozenset(_decomp.get_onnx_implemented_overloads(registry))


@contextlib.contextmanager
def onnx_exporter(
    registry: Any,
    needs_no_decomposition: Callable[["ExportedProgram"], "ExportedProgram | None"],
    promotes_nothing: Callable[["GraphModule"], bool],
) -> Iterator[None]:
    """Run torch.onnx without what it does anew at every export.

    Args:
        registry: the table of operators that it uses instead of reading one.
        needs_no_decomposition: what stands for the decomposed program; None where torch must do it.
        promotes_nothing: whether torch's pass that makes type promotion explicit can be left out.
    """
    from torch.onnx._internal.exporter import _fx_passes, _registration

    original = _registration.ONNXRegistry.from_torchlib
    decompose = _fx_passes.decompose_with_registry
    promote = _fx_passes.insert_type_promotion_nodes

    def decompose_if_needed(program: "ExportedProgram", table: Any) -> "ExportedProgram":
        short = needs_no_decomposition(program)
        return decompose(program, table) if short is None else short

    def promote_if_needed(graph_module: "GraphModule") -> None:
        if not promotes_nothing(graph_module):
            promote(graph_module)

    _registration.ONNXRegistry.from_torchlib = lambda *_, **__: registry  # type: ignore
    _fx_passes.decompose_with_registry = decompose_if_needed  # type: ignore[assignment]
    _fx_passes.insert_type_promotion_nodes = promote_if_needed
    try:
        yield
    finally:
        _registration.ONNXRegistry.from_torchlib = original  # type: ignore[method-assign]
        _fx_passes.decompose_with_registry = decompose
        _fx_passes.insert_type_promotion_nodes = promote


@functools.cache
def _promotion_table() -> Any:
    from torch.onnx._internal.fx.passes import type_promotion

    return type_promotion.TypePromotionTable()


def promoted_dtypes(node: "Node") -> list[tuple[Any, torch.dtype]] | None:
    """The arguments of a node of a captured program, each with the dtype it is promoted to.

    None where an argument has no value on record; empty for an operator that promotes nothing.
    """
    from torch.fx import Node
    from torch.onnx._internal.fx.passes import type_promotion

    rule = type_promotion.get_type_promotion_rule(node, _promotion_table())
    if rule is None:
        return []
    if any("val" not in argument.meta for argument in node.all_input_nodes):
        return None
    args, kwargs = tree_map_only(
        Node, lambda argument: argument.meta["val"], (node.args, dict(node.kwargs))
    )
    wanted = rule.preview_type_promotion(args, kwargs)
    found = [(args[i], dtype) for i, dtype in wanted.args_dtypes.items()]
    return found + [(kwargs[name], dtype) for name, dtype in wanted.kwargs_dtypes.items()]
