"""How a module is called with flat inputs, and how what it returns becomes flat outputs.

The entry is written as Python source: explicit arguments are what TorchScript can script and
torch.export can name, and dicts and dataclasses become plain expressions in it.
"""

import dataclasses
import inspect
import itertools
import keyword
import linecache
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from linattn.contract import closest
from linattn_export.live_module.modes import evaluated
from linattn_export.live_module.reasons import ENTRY
from linattn_export.live_module.signature import class_name, parameters_of
from linattn_export.own.spec import Inputs, is_list, key_of, name_of
from linattn_models.contract import check_length
from linattn_runtime_checks.contract.errors import UsageError

_NUMBER = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One tensor of what a module returns: its name, and the expression that takes it out."""

    name: str
    expression: str


def arguments_of(module: nn.Module, inputs: Inputs) -> tuple[str, dict[str, Any]]:
    """The call of ``module.forward`` as source, and the classes that it names.

    Inputs have the names of :func:`identifier`.

    Raises:
        UsageError: the SPEC and the signature of ``forward`` contradict each other.
    """
    parameters = parameters_of(module)
    hints = _hints(module)
    by_name = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    takes_more = [n for n, p in parameters.items() if p.kind is p.VAR_POSITIONAL]
    forward = f"{class_name(module)}.forward"
    signature = f"it takes {', '.join(parameters) or 'nothing'}"
    named: dict[str, Any] = {}
    words: list[str] = []
    tree = inputs.spec.inputs
    for name, branch in tree.items():
        if name not in by_name and not takes_any and not takes_more:
            near = closest(name, by_name)
            hint = f"; did you mean {near!r}?" if near else ""
            raise UsageError(
                f"{key_of((name,))}: {forward} has no argument {name!r}; {signature}{hint}"
            )
        value = _expression(branch, (name,), hints.get(name), named)
        positional = (
            name in by_name and by_name[name].kind is not inspect.Parameter.KEYWORD_ONLY
        ) or (name not in by_name and not takes_any)
        in_order = list(parameters)[: len(words) + 1] == [*list(tree)[: len(words)], name]
        words.append(value if positional and (in_order or takes_more) else f"{name}={value}")
    for name, parameter in by_name.items():
        if parameter.default is parameter.empty and name not in tree:
            raise UsageError(
                f"{key_of((name,))} is missing: the argument {name!r} of {forward} has no default; "
                f"describe it in [{key_of((name,))}]"
            )
    return ", ".join(words), named


def identifier(name: str) -> str:
    """A Python name for the input called ``name``."""
    found = re.sub(r"\W", "_", name)
    if found[:1].isdigit():
        return f"_{found}"
    return f"{found}_" if keyword.iskeyword(found) or found in ("self", "found") else found


def leaves_of(outputs: Any, keep: Sequence[str] | None, taken: Sequence[str]) -> list[Leaf]:
    """The tensors of what a module returned, in order.

    Args:
        outputs: a tensor, or tensors in tuples, lists, dicts, dataclasses and the like.
        keep: names of those to keep, in this order; None for all.
        taken: names of the inputs; a file cannot give an output the same one.

    Raises:
        UsageError: something in it is no tensor, or a name of ``keep`` is not among them.
    """
    found = list(_walk(outputs, (), "found"))
    names = [_name(path, len(found)) for path, _, _ in found]
    if keep is not None:
        for name in keep:
            if name not in names:
                near = closest(name, names)
                hint = f"; did you mean {near!r}?" if near else ""
                raise UsageError(
                    f"outputs names {name!r}; the module returns {', '.join(names)}{hint}"
                )
        found = [found[names.index(name)] for name in keep]
        names = list(keep)
    for name, (_, _, value) in zip(names, found, strict=True):
        if not isinstance(value, Tensor):
            raise UsageError(
                f"output {name!r} is {type(value).__name__}, expected a tensor; name the outputs "
                f"to keep in the SPEC: outputs = [{', '.join(map(repr, _tensors(names, found)))}]"
            )
        if not value.is_floating_point():
            raise UsageError(
                f"output {name!r} is {str(value.dtype).removeprefix('torch.')}: what rounding may "
                "change in it cannot be said; return the scores that it is made from, or leave "
                f"it out with outputs = [{', '.join(map(repr, _floating(names, found)))}]"
            )
    if not found:
        raise UsageError("the module returns no tensor; a file needs at least one output")
    return [
        Leaf(name=f"{name}_out" if name in taken else name, expression=expression)
        for name, (_, expression, _) in zip(names, found, strict=True)
    ]


def make_entry(
    module: nn.Module,
    inputs: Inputs,
    leaves: Sequence[Leaf] | None,
    length: int,
    written: Iterable[str] = (),
) -> nn.Module:
    """The module with one tensor an argument and a flat tuple of outputs.

    Args:
        module: what is called.
        inputs: its SPEC.
        leaves: what to return; None returns what the module does.
        length: the only length that the entry accepts, 0 for any.
        written: inputs that the module writes into; it is given copies of them.
    """
    call, named = arguments_of(module, inputs)
    names = {name_of(path): identifier(name_of(path)) for path in inputs.tables}
    along = next(((name_of(p), t) for p, t in inputs.tables.items() if "sequence" in t.shape), None)
    taken = "found" if leaves is None else ", ".join(leaf.expression for leaf in leaves)
    lines = [
        "class OwnEntry(nn.Module):",
        "    def __init__(self, module: nn.Module, length: int) -> None:",
        "        super().__init__()",
        "        self.module = module",
        "        self.length = length",
        "",
        f"    def forward(self, {', '.join(f'{name}: Tensor' for name in names.values())}):",
    ]
    if along is not None:
        axis = along[1].shape.index("sequence")
        lines.append(f"        check_length({names[along[0]]}.size({axis}), self.length)")
    lines += [f"        {names[name]} = {names[name]}.clone()" for name in written]
    lines += [f"        found = self.module({call})", f"        return {taken}", ""]
    kind = _compiled("\n".join(lines), named)["OwnEntry"]
    entry: nn.Module = kind(module, length)
    return evaluated(entry)


def _compiled(source: str, named: Mapping[str, Any]) -> dict[str, Any]:
    file = f"{ENTRY} {next(_NUMBER)}>"
    # Where torch.jit finds the source of a class that is in no file.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {
        "__name__": __name__, "nn": nn, "Tensor": torch.Tensor, "check_length": check_length,
        **named,
    }  # fmt: skip
    exec(compile(source, file, "exec"), space)
    return space


def _hints(module: nn.Module) -> dict[str, Any]:
    try:
        return typing.get_type_hints(type(module).forward)
    except Exception:  # a hint that cannot be evaluated says nothing of the argument
        return {}


def _expression(
    branch: Mapping[str, Any], path: tuple[str, ...], hint: Any, named: dict[str, Any]
) -> str:
    if "shape" in branch:
        return identifier(name_of(path))
    kind = hint if inspect.isclass(hint) and (_fields(hint) is not None) else None
    known = _fields(kind) if kind is not None else None
    if known is not None:
        for name in branch:
            if name not in known:
                near = closest(name, known)
                hint_ = f"; did you mean {near!r}?" if near else ""
                raise UsageError(
                    f"{key_of((*path, name))}: {kind.__name__} has {', '.join(known)}{hint_}"  # type: ignore[union-attr]
                )
    parts = {
        name: _expression(part, (*path, name), _hint_of(hint, known, name), named)
        for name, part in branch.items()
    }
    if is_list(branch) and not _is_mapping(hint):
        ordered = ", ".join(parts[str(index)] for index in range(len(parts)))
        return f"({ordered},)" if typing.get_origin(hint) is tuple else f"[{ordered}]"
    if kind is None:
        return "{" + ", ".join(f"{name!r}: {part}" for name, part in parts.items()) + "}"
    named[kind.__name__] = kind
    return f"{kind.__name__}({', '.join(f'{name}={part}' for name, part in parts.items())})"


def _is_mapping(hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    return inspect.isclass(kind) and issubclass(kind, Mapping)


def _hint_of(hint: Any, fields: Mapping[str, Any] | None, name: str) -> Any:
    """Of one field, or of one element of a list, tuple or dict."""
    if fields is not None:
        return fields.get(name)
    inner = [part for part in typing.get_args(hint) if part is not Ellipsis]
    if not inner or typing.get_origin(hint) is typing.Union:
        return None
    return inner[int(name)] if name.isdigit() and int(name) < len(inner) else inner[-1]


def _fields(kind: Any) -> dict[str, Any] | None:
    """Of a dataclass or a named tuple, to their hints; None for another class."""
    if dataclasses.is_dataclass(kind):
        return {field.name: field.type for field in dataclasses.fields(kind)}
    if inspect.isclass(kind) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return dict.fromkeys(kind._fields)
    return None


def _walk(
    value: Any, path: tuple[str, ...], expression: str
) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    if value is None:
        return
    if isinstance(value, Mapping):  # transformers' outputs too
        for key, part in value.items():
            yield from _walk(part, (*path, str(key)), f"{expression}[{key!r}]")
    elif isinstance(value, tuple | list):
        fields = getattr(value, "_fields", None)
        for index, part in enumerate(value):
            name = str(index) if fields is None else fields[index]
            step = f"[{index}]" if fields is None else f".{fields[index]}"
            yield from _walk(part, (*path, name), expression + step)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            part = getattr(value, field.name)
            yield from _walk(part, (*path, field.name), f"{expression}.{field.name}")
    else:
        yield path, expression, value


def _name(path: tuple[str, ...], count: int) -> str:
    if not path:
        return "output"
    words = [f"output_{word}" if word.isdigit() and i == 0 else word for i, word in enumerate(path)]
    return "output" if count == 1 and path[0].isdigit() else "_".join(words)


def _tensors(names: Sequence[str], found: Sequence[tuple[Any, str, Any]]) -> list[str]:
    return [n for n, (_, _, v) in zip(names, found, strict=True) if isinstance(v, Tensor)]


def _floating(names: Sequence[str], found: Sequence[tuple[Any, str, Any]]) -> list[str]:
    return [
        n
        for n, (_, _, v) in zip(names, found, strict=True)
        if isinstance(v, Tensor) and v.is_floating_point()
    ]
