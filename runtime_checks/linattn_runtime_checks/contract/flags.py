"""Flags of a command, each defined once: in the metadata of a dataclass's field.

``opset: int = field(default=18, metadata=flag("--opset", metavar="N", help="ONNX opset."))`` makes
the field ``opset`` the flag ``--opset``. From it follow the option of the command
(:mod:`linattn_runtime_checks.command_line`), the words of a recorded command, and the name that a
user of the command reads in an error.

The message of an error names fields in backticks, alone or with a value that Python can read:
```opset` must be 17 to 23``, ``use `opset=18```. A command turns them into flags:
``--opset must be 17 to 23``, ``use --opset 18``.
"""

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_KEY = "flag"
_FIELD = re.compile(r"`(\w+)(?:=([^`]*))?`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """A second flag of the same field, which takes no value and sets the field to ``value``."""

    name: str
    value: object
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """What a command line knows of one field.

    A field that is True or False by default is a switch: given, it makes the field the opposite of
    its default. A pair such as ``--mask/--no-mask`` is of a field that is None by default. A field
    that is a tuple or a dict may be given repeatedly.

    Attributes:
        names: of the option, the one that is recorded first; none for an argument.
        help: one line for the user of the command.
        metavar: what stands for the value in the help.
        about: what the field means in Python, where ``help`` does not say it.
        told: the name in messages, where it is not the first of ``names``; a value follows the
            part before a slash.
        off: a second flag, which sets the field to a value of its own.
        read: from the field's name in backticks and a text, or all texts of a dict, to the value.
        write: from the value to the texts, where str() of the value, or of its parts, is not it.
        recorded: whether the recorded command holds it: always, where it is not the default, never.
        first: whether the recorded command begins with it.
        without: another field; both cannot be given together.
        clash: the message where a field that names this one in ``without`` is given; ``{}`` is it.
    """

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    about: str = ""
    told: str = ""
    off: Off | None = None
    read: Callable[[str, Any], object] | None = None
    write: Callable[[Any], Iterable[str]] | None = None
    recorded: Literal["always", "changed", "never"] = "changed"
    first: bool = False
    without: str = ""
    clash: str = ""


def flag(*names: str, help: str, **more: Any) -> dict[str, Flag]:
    """The metadata of a field that is a flag; see :class:`Flag` for what may be said."""
    return {_KEY: Flag(names=names, help=help, **more)}


def flags_of(record: type) -> dict[str, tuple[dataclasses.Field[Any], Flag]]:
    """Every field of the dataclass that is a flag, in the order of the fields."""
    return {
        field.name: (field, field.metadata[_KEY])
        for field in dataclasses.fields(record)
        if _KEY in field.metadata
    }


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field, which may be made by a factory; MISSING where it has none."""
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def recorded(request: Any) -> list[str]:
    """The words of a command line that make ``request``, without paths of this machine.

    Files are named without their folders.
    """
    flags = flags_of(type(request))
    words: list[str] = []
    for field, found in sorted(flags.values(), key=lambda each: not each[1].first):
        value = getattr(request, field.name)
        usual = value == default_of(field)
        apart = bool(found.without) and getattr(request, found.without) is not None
        if found.recorded == "never" or (usual and (apart or found.recorded == "changed")):
            continue
        words += _words(field, found, Path(value.name) if isinstance(value, Path) else value)
    return words


def as_flags(text: str, record: type) -> str:
    """The message of an error, with the flags of a command for the fields of its dataclass.

    What else is in backticks stays as it is.
    """
    flags = flags_of(record)

    def shown(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in flags:
            return match.group()
        field, found = flags[name]
        told = found.told or (found.names[0] if found.names else found.metavar or name)
        if value is None:
            return told
        try:
            meant = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return match.group()
        if isinstance(meant, tuple) and "tuple[" not in str(field.type):
            return match.group()  # a line of somebody's call, which ends in a comma
        switch = isinstance(meant, bool)
        words = _words(field, found, meant, told if switch else told.split("/")[0])
        return " ".join(words) or match.group()

    return _FIELD.sub(shown, text)


def _words(field: dataclasses.Field[Any], found: Flag, value: Any, name: str = "") -> list[str]:
    """What sets the field to ``value``; nothing for a switch that stays as it is."""
    name = name or found.names[0]
    if isinstance(value, list):
        value = tuple(value)
    if found.off is not None and value == found.off.value:
        return [found.off.name]
    if isinstance(value, bool):
        yes, _, no = name.partition("/")
        if no:
            return [yes if value else no]
        return [] if value == field.default else [name]
    if found.write is not None:
        texts = list(found.write(value))
    else:
        texts = [str(part) for part in (value if isinstance(value, tuple) else (value,))]
    return [word for text in texts for word in (name, text)]
