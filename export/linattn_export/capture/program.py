"""Captures an entry module with torch.export: once per variant, for every format that wants it."""

import contextlib
import io
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from linattn import torch_internals
from linattn.recurrent.operator import as_operator
from linattn.torch_internals import ASSERT_TENSOR_METADATA, forget_compiled
from linattn_export.capture.guards import (
    Attempt,
    Failing,
    Guard,
    Point,
    describe,
    points_of,
    recorded,
    symbols_of,
)
from linattn_export.capture.recurrences import kept
from linattn_export.inputs.drawing import draw
from linattn_export.live_module.reasons import (
    Fixed,
    place_in_own_code,
    remember_places,
    watched,
    why_not_captured,
)
from linattn_export.live_module.watches import writes_of
from linattn_export.options.variants import PORTABLE, Variant
from linattn_export.subjects.states import states_for
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.errors import ExportError, foreign

# What torch records about the user's source: paths of this machine, in every node.
_TRACES = ("stack_trace", "custom", "from_node", "source_fn_stack", "torch_fn")

_TRIES = 6
"""Captures for a condition that does not hold everywhere."""


def example_inputs(
    subject: Subject, variant: Variant, sizes: dict[str, int] | None = None
) -> dict[str, Tensor]:
    """Inputs of the sizes that the exporter sees, or of ``sizes``."""
    sizes = sizes or variant.captured
    return draw(
        subject.inputs,
        sizes,
        family="normal",
        dtype=subject.dtype,
        seed=subject.seed,
        task=subject.task,
        states=states_for(subject, sizes),
    )


def capture(entry: nn.Module, subject: Subject, variant: Variant) -> ExportedProgram:
    """Capture ``entry`` with the axes of ``variant``.

    torch.export raises when an axis cannot stay dynamic; torch.onnx.export, given a module,
    quietly makes it static. So the program captured here is what every format starts from.

    Raises:
        ExportError: the module cannot be captured with these axes; the message is torch's.
    """
    symbols: dict[str | int, Any] = {
        name: Dim(name, min=variant.size(name).low, max=variant.size(name).high)
        for name in ("batch", "sequence")
        if not variant.size(name).fixed
    }
    arguments = tuple(example_inputs(subject, variant).values())
    fixed = Fixed()
    one_node = variant.form != PORTABLE
    chunks = subject.traits.scans and not variant.sequence.fixed and not one_node
    try:
        with watched(fixed):
            program = _exported(
                entry, arguments, _axes(subject, symbols), one_node=one_node, chunks=chunks
            )
    except Exception as error:
        found = None
        if subject.is_own and not one_node:
            found = _at_every_size(entry, subject, variant)
        if found is None:
            limits = subject.traits.limits.items()
            known = "".join(f"; known limit ({what}): {why}" for what, why in limits)
            raise ExportError(
                f"{subject.name} cannot be captured as {variant.name}: "
                f"{why_not_captured(error, fixed, variant.captured)}{known}"
            ) from error
        program = found
    finally:
        subject.restore()
    _require_inputs_kept(program, subject, variant)
    remember_places(program)
    for node in list(program.graph.nodes):
        # It says nothing that the graph does not, and ties the file to the device of the capture.
        if node.target is ASSERT_TENSOR_METADATA:
            program.graph.erase_node(node)
            continue
        for key in _TRACES:
            node.meta.pop(key, None)
    program.graph_module.recompile()
    return program


def _require_inputs_kept(program: ExportedProgram, subject: Subject, variant: Variant) -> None:
    """The entry copies what its module was seen to write into; nothing else may be written."""
    if not subject.is_own:
        return
    run = program.module()
    written = writes_of(lambda given: run(*given.values()), example_inputs(subject, variant))
    for name in written:
        raise ExportError(
            f"{subject.name} cannot be captured as {variant.name}: while it is captured the module "
            f"writes into its input {name}, and at other times it does not; look for a "
            "branch on torch.compiler.is_exporting(), or let it write into a copy"
        )


def captured_with(subject: Subject, variant: Variant, sequence: int) -> ExportedProgram:
    """As :func:`capture`, with another length and no axis that has a range."""
    sizes = variant.captured | {"sequence": sequence}
    arguments = tuple(example_inputs(subject, variant, sizes).values())
    return _exported(subject.entry(), arguments, _axes(subject, {}), one_node=False, chunks=False)


def _axes(subject: Subject, symbols: Mapping[str | int, Any]) -> tuple[dict[int, Any], ...]:
    return tuple(
        {index: symbols[axis] for index, axis in enumerate(spec.axes) if axis in symbols}
        for spec in subject.inputs
    )


def _at_every_size(entry: nn.Module, subject: Subject, variant: Variant) -> ExportedProgram | None:
    """A program that is right at every declared size, though torch is not sure of it.

    What capture takes for granted is tried at every size. Where it does not hold, the module is
    captured anew at such a size; the same program there means that nothing hangs on it.

    Returns:
        The program; None where it cannot be captured like this either.

    Raises:
        ExportError: at some sizes the module raises, or computes something else.
    """
    try:
        first = _attempt(entry, subject, variant, variant.captured)
    except Exception:  # the caller says what was wrong the first time
        return None
    if first is None:
        return None
    wrong = first.failing(points_of(variant))
    first.without_assertions()
    for failing in wrong:
        for near in _to_try(failing, variant):
            if near not in failing.points:
                continue  # answered meanwhile
            sizes = dict(zip(("batch", "sequence"), near, strict=True))
            try:
                other = _attempt(entry, subject, variant, sizes)
            except Exception:  # seen, and said, by running the module there
                other = None
            still = {near}
            if other is not None:
                still = set().union(*(one.points for one in other.failing(sorted(failing.points))))
                other.without_assertions()
            if other is None or near in still or not other.computes_as(first):
                if failing.leaves_one(variant):
                    return None  # the axis became fixed, which the caller says
                raise ExportError(
                    f"{subject.name} cannot be captured as {variant.name}: "
                    + _why_not(entry, subject, variant, sizes, failing)
                )
            failing.points &= still
    first.declare(variant)
    return first.program


def _to_try(failing: Failing, variant: Variant) -> list[Point]:
    """Points where a guard does not hold: those next to what was captured, and the ends."""
    captured = (variant.captured["batch"], variant.captured["sequence"])

    def distance(point: Point) -> tuple[int, Point]:
        return sum(abs(a - b) for a, b in zip(point, captured, strict=True)), point

    ordered = sorted(failing.points, key=distance)
    return list(dict.fromkeys([*ordered[:2], min(ordered), max(ordered), *ordered[2:]]))[:_TRIES]


def _attempt(
    entry: nn.Module, subject: Subject, variant: Variant, sizes: dict[str, int]
) -> Attempt | None:
    """Captured at ``sizes``, with the conditions noted; None where an axis became fixed."""
    ranges: dict[str | int, Any] = {
        name: Dim.AUTO(min=variant.size(name).low, max=variant.size(name).high)
        for name in ("batch", "sequence")
        if not variant.size(name).fixed
    }
    subject.restore()
    arguments = tuple(example_inputs(subject, variant, sizes).values())
    guards: list[Guard] = []
    with recorded(guards):
        program = _exported(
            entry, arguments, _axes(subject, ranges), one_node=False, chunks=True, asserted=True
        )
    symbols = symbols_of(program, [spec.axes for spec in subject.inputs], variant)
    return None if symbols is None else Attempt(program, tuple(guards), symbols)


def _why_not(
    entry: nn.Module, subject: Subject, variant: Variant, sizes: dict[str, int], failing: Failing
) -> str:
    where, rest = describe(failing, variant)
    fix = f"declare {rest or 'fixed sizes that it takes'}"
    try:
        with torch.no_grad():
            entry(*example_inputs(subject, variant, sizes).values())
    except Exception as error:
        said = foreign(str(error)).strip().splitlines()
        return (
            f"the module does not take every declared size: at {where} it raises "
            f"{type(error).__name__}: {said[0] if said else 'no message'}{place_in_own_code(error)}"
            f"; pad or cut to a size that it takes inside the module (F.pad and -n % 8 make a "
            f"multiple of 8), or {fix}"
        )
    place = failing.guard.place
    asked = f", which is decided at {place}" if place is not None else ""
    captured = " and ".join(f"{axis} = {variant.captured[axis]}" for axis in failing.axes)
    return (
        f"at {where} the module computes something else than at {captured}{asked}, and a file "
        f"holds one graph for all sizes; write both as one, with torch.where or a mask, or {fix}"
    )


def _exported(
    entry: nn.Module,
    arguments: tuple[Tensor, ...],
    dynamic: tuple[dict[int, Any], ...],
    *,
    one_node: bool,
    chunks: bool,
    asserted: bool = False,
) -> ExportedProgram:
    # torch prints the graph of what depends on data; the error says which line it is.
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        contextlib.redirect_stderr(io.StringIO()),
        kept(),
        sizes_may_be_one() if chunks else contextlib.nullcontext(),
        as_operator() if one_node else contextlib.nullcontext(),
    ):
        # torch.export trips over a pytree class that torch itself has deprecated.
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        # What a module keeps was seen to change no output, and is given back afterwards; nn.GRU and
        # the like keep a list of their weights.
        warnings.filterwarnings("ignore", message="The tensor attribute", category=UserWarning)
        return torch.export.export(
            entry,
            arguments,
            dynamic_shapes=dynamic,
            prefer_deferred_runtime_asserts_over_guards=asserted,
        )


def sizes_may_be_one() -> contextlib.AbstractContextManager[None]:
    """Let the number of chunks of a causal method be 1 too.

    torch.export otherwise decides that a size which comes out of another is not 1, and excludes
    every sequence that makes one chunk. Whether 1 works is seen by running the artifact.
    """
    # What torch.compile made of a scan of another length would be compared with this one's.
    forget_compiled()
    return torch_internals.sizes_may_be_one()
