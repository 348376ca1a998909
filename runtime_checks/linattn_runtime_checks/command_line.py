"""Makes a command of a dataclass whose fields are flags; see ``contract/flags.py``."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer

from linattn_runtime_checks.contract.errors import LinattnError, UsageError
from linattn_runtime_checks.contract.flags import Flag, as_flags, default_of, flags_of

Record = TypeVar("Record")


def takes(record: type, before: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function of one ``record``, so that typer asks for its flags.

    Errors that the function raises speak of fields; the user of the command reads flags.

    Args:
        record: a dataclass whose fields are flags.
        before: the field before whose flag the function's further parameters stand in the help.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]

        def command(**values: Any) -> None:
            more = {parameter.name: values.pop(parameter.name) for parameter in own}
            try:
                function(parsed(record, values), **more)
            except LinattnError as error:
                error.args = (as_flags(str(error), record),)
                raise

        parameters: list[inspect.Parameter] = []
        for name, (field, flag) in flags_of(record).items():
            if name == before:
                parameters += own
            parameters += _parameters(field, flag)
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def parsed(record: type[Record], values: dict[str, Any]) -> Record:
    """The dataclass that ``values`` describe: what typer found, by the names of the parameters.

    Raises:
        UsageError: flags exclude each other, or a value cannot be used.
    """
    flags = flags_of(record)
    found: dict[str, Any] = {}
    for name, (field, flag) in flags.items():
        value = values[name]
        given = _given(field, flag, values)
        if flag.off is not None and values[_off(name)]:
            if given and value:
                raise UsageError(f"{flag.off.name} and `{name}` exclude each other; leave one out")
            found[name] = flag.off.value
        if flag.without and given and _given(*flags[flag.without], values):
            raise UsageError(flags[flag.without][1].clash.format(f"`{name}`"))
        if given:
            found[name] = _value(field, flag, value)
    return record(**found)


def _value(field: dataclasses.Field[Any], flag: Flag, value: Any) -> Any:
    if _is_switch(field, flag):
        return not field.default
    read = flag.read or (lambda _, text: text)
    label = f"`{field.name}`"
    if _repeats(field) and not isinstance(default_of(field), dict):
        return tuple(read(label, text) for text in value)
    return read(label, value)


def _parameters(field: dataclasses.Field[Any], flag: Flag) -> list[inspect.Parameter]:
    """The parameters of the function that typer sees: one, or two where there is an ``off``."""
    default, kind = default_of(field), field.type
    if _repeats(field):
        default, kind = None, list[str] | None
    elif _is_switch(field, flag):
        default = False
    elif flag.read is not None:
        default, kind = (None, str | None) if default is None else (str(default), str)
    if not flag.names:
        option = typer.Argument(..., metavar=flag.metavar, help=flag.help)
    else:
        option = typer.Option(default, *flag.names, metavar=flag.metavar, help=flag.help)
    made = [_parameter(field.name, option, kind)]
    if flag.off is not None:
        switch = typer.Option(False, flag.off.name, help=flag.off.help)
        made.append(_parameter(_off(field.name), switch, bool))
    return made


def _parameter(name: str, option: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _given(field: dataclasses.Field[Any], flag: Flag, values: dict[str, Any]) -> bool:
    value = values[field.name]
    return value is True if _is_switch(field, flag) else value not in (None, [])


def _is_switch(field: dataclasses.Field[Any], flag: Flag) -> bool:
    return isinstance(field.default, bool)


def _repeats(field: dataclasses.Field[Any]) -> bool:
    return "tuple[" in str(field.type) or "dict[" in str(field.type)


def _off(name: str) -> str:
    return f"no_{name}"
