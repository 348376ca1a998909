"""The sizes that vary, and what to write where a SPEC names another one."""

from collections.abc import Iterable, Mapping
from typing import Any

from linattn.contract import closest

SYMBOLS = ("batch", "sequence")


def near(name: str, known: Iterable[str]) -> str:
    """``; did you mean ..?``, or nothing."""
    found = closest(name, list(known))
    return f"; did you mean {found!r}?" if found else ""


def renamed(name: str, symbols: Mapping[str, Any]) -> str:
    """What to do with a symbol that is neither."""
    if hint := near(name, SYMBOLS):
        return hint
    free = next((symbol for symbol in SYMBOLS[::-1] if symbol not in symbols), None)
    if free is None:
        return f"; write a number for {name} in the shapes, and leave it out here"
    return f"; call it {free} here and in the shapes, or write a number there"


def other_axis(axis: str, symbols: Mapping[str, Any]) -> str:
    """What to write for an axis that has no symbol."""
    if axis in SYMBOLS:
        return f'; add {axis} = "1:8", or give a number'
    if hint := near(axis, SYMBOLS):
        return hint
    if "sequence" in symbols:
        return (
            "; two sizes can vary, batch and sequence: write the number of "
            f'{axis}, or "sequence" if it is always as long'
        )
    return (
        '; two sizes can vary, batch and sequence: call it "sequence" and add sequence = "1:8", '
        "or write its number"
    )
