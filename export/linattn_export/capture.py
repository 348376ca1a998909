"""Captures an entry module with torch.export: once per variant, for every format that wants it."""

import contextlib
import io
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from linattn.recurrent.operator import as_operator
from linattn_export.inputs import draw
from linattn_export.own.reasons import (
    Fixed,
    excludes_one,
    remember_places,
    watched,
    why_not_captured,
)
from linattn_export.own.watches import writes_of
from linattn_export.states import states_for
from linattn_export.subject import Subject
from linattn_export.variants import PORTABLE, Variant
from linattn_runtime_checks.errors import ExportError

# What torch records about the user's source: paths of this machine, in every node.
_TRACES = ("stack_trace", "custom", "from_node", "source_fn_stack", "torch_fn")

# What torch adds before a cast: it says nothing that the graph does not, and ties the file to the
# device of the capture.
_DEVICE_CHECK = torch.ops.aten._assert_tensor_metadata.default

IMPORTS = (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch._inductor.output_code",
    "torch.export._trace",
    "torch.export._unlift",
    "torch._export.non_strict_utils",
)
"""What torch.export imports in its midst."""


def example_inputs(subject: Subject, variant: Variant) -> dict[str, Tensor]:
    """Inputs of the sizes that the exporter sees."""
    return draw(
        subject.inputs,
        variant.captured,
        family="normal",
        dtype=subject.dtype,
        seed=subject.seed,
        task=subject.task,
        states=states_for(subject, variant.captured),
    )


def capture(entry: nn.Module, subject: Subject, variant: Variant) -> ExportedProgram:
    """Capture ``entry`` with the axes of ``variant``.

    torch.export raises when an axis cannot stay dynamic; torch.onnx.export, given a module,
    quietly makes it static. So the program captured here is what every format starts from.

    Raises:
        ExportError: the module cannot be captured with these axes; the message is torch's.
    """
    symbols = {
        name: Dim(name, min=variant.size(name).low, max=variant.size(name).high)
        for name in ("batch", "sequence")
        if not variant.size(name).fixed
    }
    dynamic = tuple(
        {
            index: symbols[axis]
            for index, axis in enumerate(spec.axes)
            if isinstance(axis, str) and axis in symbols
        }
        for spec in subject.inputs
    )
    arguments = tuple(example_inputs(subject, variant).values())
    fixed = Fixed()
    one_node = variant.form != PORTABLE
    chunks = subject.traits.scans and not variant.sequence.fixed and not one_node
    call = partial(_exported, entry, arguments, dynamic, fixed, one_node=one_node)
    try:
        try:
            program = call(chunks=chunks)
        except Exception as error:
            if chunks or subject.origin.module is None or not excludes_one(error):
                raise
            program = call(chunks=True)
    except Exception as error:
        limits = subject.traits.limits.items()
        known = "".join(f"; known limit ({what}): {why}" for what, why in limits)
        raise ExportError(
            f"{subject.name} cannot be captured as {variant.name}: "
            f"{why_not_captured(error, fixed, variant.captured)}{known}"
        ) from error
    finally:
        subject.restore()
    _require_inputs_kept(program, subject, variant)
    remember_places(program)
    for node in list(program.graph.nodes):
        if node.target is _DEVICE_CHECK:
            program.graph.erase_node(node)
            continue
        for key in _TRACES:
            node.meta.pop(key, None)
    program.graph_module.recompile()
    return program


def _require_inputs_kept(program: ExportedProgram, subject: Subject, variant: Variant) -> None:
    """The entry copies what its module was seen to write into; nothing else may be written."""
    if subject.origin.module is None:
        return
    run = program.module()
    written = writes_of(lambda given: run(*given.values()), example_inputs(subject, variant))
    for name in written:
        raise ExportError(
            f"{subject.name} cannot be captured as {variant.name}: while it is captured the module "
            f"writes into its input {name}, and at other times it does not; look for a "
            "branch on torch.compiler.is_exporting(), or let it write into a copy"
        )


def _exported(
    entry: nn.Module,
    arguments: tuple[Tensor, ...],
    dynamic: tuple[dict[int, Any], ...],
    fixed: Fixed,
    *,
    one_node: bool,
    chunks: bool,
) -> ExportedProgram:
    # torch prints the graph of what depends on data; the error says which line it is.
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        watched(fixed),
        contextlib.redirect_stderr(io.StringIO()),
        sizes_may_be_one() if chunks else contextlib.nullcontext(),
        as_operator() if one_node else contextlib.nullcontext(),
    ):
        # torch.export trips over a pytree class that torch itself has deprecated.
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        # What a module keeps was seen to change no output, and is given back afterwards.
        warnings.filterwarnings("ignore", message="The tensor attribute", category=UserWarning)
        return torch.export.export(entry, arguments, dynamic_shapes=dynamic)


def sizes_may_be_one() -> contextlib.AbstractContextManager[None]:
    """Let the number of chunks of a causal method be 1 too.

    torch.export otherwise decides that a size which comes out of another is not 1, and excludes
    every sequence that makes one chunk. Whether 1 works is seen by running the artifact.
    """
    from torch.fx.experimental import _config

    # What torch.compile made of a scan of another length would be compared with this one's.
    torch._dynamo.reset()
    patch: Any = _config.patch  # type: ignore[attr-defined]
    found: contextlib.AbstractContextManager[None] = patch(backed_size_oblivious=True)
    return found
