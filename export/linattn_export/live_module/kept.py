"""What a module keeps from run to run besides its weights: attributes, buffers, what hooks collect.

A file keeps nothing. So every run starts from what was there, and a module whose outputs depend on
what an earlier run left behind is refused by the name of what it keeps.
"""

import functools
import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_DEPTH = 4
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_CONTAINERS = (dict, list, set, deque)
_OPAQUE = (
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    CodeType,
    nn.Module,
    torch.ScriptObject,
    torch.dtype,
)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one is other or torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


class Kept:
    """What ``module`` keeps, as it was when this was made."""

    def __init__(self, module: nn.Module) -> None:
        self._values: dict[int, tuple[str, Any, Any]] = {}
        """Of each container its name, itself (so that its id stays its own), and its content."""
        self._tensors: dict[int, tuple[str, Tensor, Tensor]] = {}
        for path, part in module.named_modules():
            for name, owner in _owners(path, part):
                self._add(name, owner, _DEPTH)

    def changed(self) -> list[str]:
        """Names of what is not as it was."""
        found = [
            name if found is None else f"{name}.{found}" if name else str(found)
            for name, owner, content in self._values.values()
            for found in _changes(owner, content)
        ]
        tensors = [
            name for name, tensor, copied in self._tensors.values() if not same(tensor, copied)
        ]
        return list(dict.fromkeys((*found, *tensors)))

    def restore(self) -> None:
        """Make it so again."""
        for _, owner, content in self._values.values():
            if next(_changes(owner, content), "nothing") != "nothing":
                _refill(owner, content)
        with torch.no_grad():
            for _, tensor, copied in self._tensors.values():
                if tensor.shape != copied.shape:
                    tensor.resize_(copied.shape)
                if not same(tensor, copied):
                    tensor.copy_(copied)

    def _add(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, nn.Parameter) or depth == 0 or id(value) in self._values:
            return
        if isinstance(value, Tensor):
            if not value.is_meta and value.layout is torch.strided and not value.is_quantized:
                self._tensors.setdefault(id(value), (name, value, value.detach().clone()))
            return
        if isinstance(value, _CONTAINERS):
            content = _content(value)
            self._values[id(value)] = (name, value, content)
            parts = content.items() if isinstance(content, dict) else enumerate(content)
            for key, part in parts:
                inner = f"{name}.{key}" if name else str(key)
                self._add(inner if isinstance(key, str) else name, part, depth - 1)
        elif _is_object(value):
            self._add(name, vars(value), depth - 1)


def _owners(path: str, part: nn.Module) -> Iterator[tuple[str, Any]]:
    """What one module holds, and what the functions hold that are hooked to it."""
    if isinstance(part, torch.jit.ScriptModule):
        yield path, dict(part.named_buffers(recurse=False))
        return
    for name in ("_buffers", "_parameters", "_modules", *_HOOKS):
        yield path, getattr(part, name)
    yield path, vars(part)
    for kind in _HOOKS:
        for hook in getattr(part, kind).values():
            for found in _held_by(hook):
                yield f"what the hook of {path or type(part).__name__} collects", found


def _held_by(function: Any) -> Iterator[Any]:
    """Containers and objects that a function refers to."""
    while isinstance(function, functools.partial):
        yield from (x for x in (*function.args, *function.keywords.values()) if _mutable(x))
        function = function.func
    if isinstance(function, MethodType):
        if _mutable(function.__self__):
            yield function.__self__
        function = function.__func__
    if isinstance(function, FunctionType):
        seen = inspect.getclosurevars(function)
        yield from (
            value for value in (*seen.nonlocals.values(), *seen.globals.values()) if _mutable(value)
        )
    elif _mutable(function):
        yield function


def _mutable(value: Any) -> bool:
    return isinstance(value, (*_CONTAINERS, Tensor)) or _is_object(value)


def _is_object(value: Any) -> bool:
    """Of a class of somebody's own, which may hold a cache."""
    package = type(value).__module__.partition(".")[0]
    foreign = package == "torch" or package in sys.stdlib_module_names
    return hasattr(value, "__dict__") and not (foreign or isinstance(value, _OPAQUE))


def _content(owner: Any) -> Any:
    return dict(owner) if isinstance(owner, dict) else list(owner)


def _changes(owner: Any, content: Any) -> Iterator[str | None]:
    """Keys whose value is another than it was; None for the container as a whole."""
    if isinstance(content, dict):
        for key in {**content, **owner}:
            if key not in owner or key not in content or not _alike(owner[key], content[key]):
                yield key if isinstance(key, str) else None
        return
    now = list(owner)
    if len(now) != len(content) or any(not _alike(a, b) for a, b in zip(now, content, strict=True)):
        yield None


def _alike(one: Any, other: Any) -> bool:
    plain = (int, float, str, bool, complex, bytes)
    return one is other or (type(one) is type(other) and isinstance(one, plain) and one == other)


def _refill(owner: Any, content: Any) -> None:
    if isinstance(owner, dict) and list(owner) == list(content):
        owner.update(content)
        return
    owner.clear()
    if isinstance(owner, (dict, set)):
        owner.update(content)
    else:
        owner.extend(content)


def line_that_changes(
    kept: Kept, run: Callable[[], object], is_own: Callable[[str], bool]
) -> tuple[str, int] | None:
    """File and line of own code at which ``run`` first changes what is kept."""
    kept.restore()
    found: list[tuple[str, int]] = []
    lines: dict[int, int] = {}

    def within(frame: Any, event: str, argument: Any) -> Any:
        if not found and event in ("line", "return"):
            if kept.changed():
                line = lines.get(id(frame), frame.f_lineno)
                found.append((frame.f_code.co_filename, line))
            lines[id(frame)] = frame.f_lineno
        return within

    def entered(frame: Any, event: str, argument: Any) -> Any:
        return within if not found and is_own(frame.f_code.co_filename) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        run()
    except Exception:  # it may fail for what it keeps; the line was found before
        pass
    finally:
        sys.settrace(before)
        kept.restore()
    return found[0] if found else None
