"""Modules that are more than plain ones: compiled, wrapped, scripted, captured, quantised.

Each kind is one record: what is taken from inside of it, or why no file can be made from it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from linattn.torch_internals import (
    TRACED,
    children_of,
    compiled_call_of,
    inside_compiled,
    is_captured,
    is_compiled,
    set_compiled_call,
)
from linattn_export.live_module.reasons import places_in
from linattn_export.live_module.signature import class_name
from linattn_runtime_checks.contract.errors import UsageError

_FRAME = re.compile(r"^(\S+)\((\d+)\):", re.MULTILINE)
"""A line of a trace, as torch.jit.trace keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """A module around another one that computes the same."""

    name: str
    holds: Callable[[nn.Module], bool]
    inside: Callable[[Any], nn.Module]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A module, or a part of one, that capture cannot take as it is."""

    holds: Callable[[nn.Module], bool]
    what: str
    advice: str
    formats: tuple[str, ...] = ()
    """Those that can be made nevertheless."""


def _is_scripted(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule) and not isinstance(module, TRACED)


def _is_frozen(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule) and not hasattr(module, "training")


def _is_quantised(module: nn.Module) -> bool:
    packed = type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.nn.quantized"))
    return packed or any(x.is_quantized for x in module.buffers(recurse=False))


def _is_on_meta(module: nn.Module) -> bool:
    tensors = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return any(x.is_meta for x in tensors)


WRAPPERS = (
    Wrapper(
        name="torch.compile",
        holds=is_compiled,
        inside=inside_compiled,
    ),
    Wrapper(
        name="DataParallel",
        holds=lambda module: isinstance(module, nn.DataParallel),
        inside=lambda module: module.module,
    ),
    Wrapper(
        name="DistributedDataParallel",
        holds=lambda module: isinstance(module, nn.parallel.DistributedDataParallel),
        inside=lambda module: module.module,
    ),
)

KINDS = (
    Kind(
        holds=_is_frozen,
        what="was made by torch.jit.freeze, and its weights are constants",
        advice="give the nn.Module that it was made from",
    ),
    Kind(
        holds=_is_scripted,
        what="was made by torch.jit.script or torch.jit.load",
        advice="give the nn.Module that it was made from, or ask for TorchScript alone",
        formats=("torchscript",),
    ),
    Kind(
        holds=_is_quantised,
        what="is quantised, and its integers have no float64 reference",
        advice="give the module before quantisation, and quantise the ONNX file that it becomes",
    ),
    Kind(
        holds=_is_on_meta,
        what="has weights or buffers on the meta device, which are shapes without numbers",
        advice=(
            "make room with module.to_empty(device='cpu') and load the weights into it, or build "
            "the module on the CPU; buffers that no state dict holds must be computed again"
        ),
    ),
)


def unwrapped(module: nn.Module) -> tuple[nn.Module, str]:
    """The module inside of wrappers, and what they are, such as `` inside torch.compile``.

    Its class, its name and its weights are those of the module inside.
    """
    names: list[str] = []
    while (found := _wrapper_of(module)) is not None:
        names.append(found.name)
        module = found.inside(module)
    return module, "".join(f" inside {name}" for name in reversed(names))


def _wrapper_of(module: nn.Module) -> Wrapper | None:
    return next((wrapper for wrapper in WRAPPERS if wrapper.holds(module)), None)


@contextmanager
def parts_unwrapped(module: nn.Module) -> Iterator[None]:
    """Put what is inside in the place of every part that is wrapped, until the end of the block."""
    calls: list[tuple[nn.Module, Any]] = []
    taken: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for part in list(module.modules()):
            if (call := compiled_call_of(part)) is not None:
                calls.append((part, call))
                set_compiled_call(part, None)
            children = {} if isinstance(part, torch.jit.ScriptModule) else children_of(part)
            for name, child in children.items():
                inside = None if child is None else unwrapped(child)[0]
                if inside is not child:
                    taken.append((children, name, child))
                    children[name] = inside
        yield
    finally:
        for place, name, value in reversed(taken):
            place[name] = value
        for part, call in calls:
            set_compiled_call(part, call)


def require_exportable(module: nn.Module, formats: Sequence[str]) -> None:
    """Refuse what no file, or not every format that is wanted, can be made from.

    Args:
        module: without wrappers.
        formats: names of all that will be written.

    Raises:
        UsageError: a part is of such a kind; the message names it and says what to give instead.
    """
    for path, part in module.named_modules():
        kind = next((kind for kind in KINDS if kind.holds(part)), None)
        refused = [] if kind is None else [name for name in formats if name not in kind.formats]
        if kind is not None and refused:
            where = f"{path} ({class_name(part)})" if path else f"the module ({class_name(part)})"
            cannot = f", so {' and '.join(refused)} cannot be made of it" if kind.formats else ""
            flag = f": formats = {list(kind.formats)}" if kind.formats else ""
            raise UsageError(f"{where} {kind.what}{cannot}; {kind.advice}{flag}")


def advice_for(module: nn.Module) -> str:
    """What to add where a module fails or draws random numbers: how it was made explains it."""
    parts = list(module.modules())
    if any(isinstance(part, TRACED) for part in parts):
        made = "torch.jit.trace keeps the sizes and the mode that it was made with"
    elif any(isinstance(part, torch.fx.GraphModule) and is_captured(part) for part in parts):
        made = "torch.export keeps the sizes and the mode that it was made with"
    else:
        return ""
    return (
        f"; {made}: give the nn.Module that it was made from, or make it again in eval mode with "
        "sizes that vary"
    )


def random_part(module: nn.Module) -> str | None:
    """Which scripted or traced part draws random numbers, and its line where torch kept that."""
    found = None
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            nodes = (node for node in _nodes_of(part.inlined_graph) if _draws(node.kind()))
            node = next(nodes, None)
            if node is not None:
                places = places_in(_FRAME.sub(r'File "\1", line \2', str(node.sourceRange())))
                inside = re.sub(r"^__module\.?", "", node.scopeName())
                name = ".".join(word for word in (path, inside) if word) or class_name(part)
                if places:
                    return f"{node.kind()} in {name}, {places[0]}"
                found = f"{node.kind()} in {name}"
    return found  # parts come after what they are part of, so the last says most


def _nodes_of(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes_of(inner)


def _draws(kind: str) -> bool:
    """Whether an operator draws random numbers, in some of its overloads."""
    space, _, name = kind.partition("::")
    packet = getattr(getattr(torch.ops, space, None), name, None) if space == "aten" else None
    if packet is None:
        return False
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return any(torch.Tag.nondeterministic_seeded in overload.tags for overload in overloads)
