"""Why a module cannot be captured, in its author's terms: file, line, axis, and the fix."""

import linecache
import logging
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.export import ExportedProgram

from linattn.torch_internals import HigherOrderOperator, OpOverload
from linattn_runtime_checks.contract.errors import foreign

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_WITH_FUNCTIONS = ("cond", "while_loop", "scan", "wrap_with_set_grad_enabled")
"""Operators that take functions, and that torch.onnx has a translation for."""
_PACKING = os.path.join("torch", "nn", "utils", "rnn.py")
_RECURRENCE = os.path.join("torch", "nn", "modules", "rnn.py")
_FILE = re.compile(r'File "([^"]+)", line (\d+)')
_OURS = ("linattn", "linattn_export", "linattn_models", "linattn_runtime_checks")
ENTRY = "<linattn entry"
"""How the file of an entry is called; what calls it is not the module's."""
_EXPORT = str(Path(__file__).parents[1]) + os.sep
_WATCHERS = ("__torch_dispatch__", "note", "record")
"""Functions of ours that torch calls in the midst of the module's code."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of somebody's own code."""

    file: str
    line: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        shown = os.path.relpath(self.file)
        if shown.startswith(".."):  # this text is kept in reports, which are no one machine's
            shown = os.path.join("..", *Path(self.file).parts[-2:])
        return f"{shown}:{self.line}" + (f" `{text}`" if text else "")


def is_own(file: str) -> bool:
    """Whether a source file is neither of Python, nor of torch, nor of linattn."""
    stdlib = sysconfig.get_paths()["stdlib"]
    packages = [torch, *(sys.modules[name] for name in _OURS if name in sys.modules)]
    foreign = [str(Path(package.__file__).parent) for package in packages if package.__file__]
    return not (
        file.startswith(("<", "code/__torch__"))
        or any(file.startswith(root + os.sep) for root in foreign)
        or (file.startswith(stdlib + os.sep) and "site-packages" not in file)
    )


def place_of(error: BaseException) -> Place | None:
    """The deepest line of own code that ``error`` came through."""
    frames = traceback.extract_tb(error.__traceback__)
    entered = [n for n, frame in enumerate(frames) if frame.filename.startswith(ENTRY)]
    own = [
        Place(frame.filename, frame.lineno or 0)
        for frame in frames[entered[0] if entered else 0 :]
        if is_own(frame.filename)
    ]
    return own[-1] if own else None


def places_in(trace: str) -> list[Place]:
    """The lines of own code that a trace, as text, names; the deepest comes last."""
    files = _FILE.findall(trace)
    return [Place(file, int(line)) for file, line in files if is_own(file)]


def place_in_own_code(error: BaseException) -> str:
    """`` at FILE:LINE `code` ``, or nothing."""
    place = place_of(error)
    return f" at {place}" if place is not None else ""


@dataclass
class Fixed:
    """Where capture gave a symbolic size one value, found while it ran."""

    places: dict[int, Place] = field(default_factory=dict)
    """Value that a size was fixed to, to the line that did it."""


@contextmanager
def watched(found: Fixed) -> Iterator[None]:
    """Note in ``found`` where a size is fixed.

    torch says so in its log, from within the line that does it.
    """
    logger = logging.getLogger(_SHAPES)
    level = logger.level

    def note(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text.startswith("set_replacement") and "range_refined_to_singleton" in text:
            value = text.partition("=")[2].split("(")[0].strip()
            place = caller()
            if place is not None and value.isdigit():
                found.places.setdefault(int(value), place)
        return record.levelno > logging.WARNING  # the rest is not for users

    logger.addFilter(note)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeFilter(note)
        logger.setLevel(level)


def caller() -> Place | None:
    """The line of the module's own code that is running; what called the module is none of it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith((ENTRY, _EXPORT)) and code.co_name not in _WATCHERS:
            return None
        if is_own(code.co_filename):
            return Place(code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


_PLACES: WeakKeyDictionary[ExportedProgram, dict[str, Place]] = WeakKeyDictionary()


def remember_places(program: ExportedProgram) -> None:
    """Keep the line of own code behind each node; the program itself must name no file."""
    found = {}
    for node in program.graph.nodes:
        own = places_in(node.meta.get("stack_trace") or "")
        if own:
            found[node.name] = own[-1]
    _PLACES[program] = found


def places_of(program: ExportedProgram) -> dict[str, Place]:
    """Names of nodes, to the lines of own code behind them."""
    return _PLACES.get(program, {})


def shown_place(program: ExportedProgram, node: torch.fx.Node) -> str:
    """`` at FILE:LINE `code` `` of a node, or nothing."""
    place = _PLACES.get(program, {}).get(node.name)
    return f" at {place}" if place is not None else ""


def why_not_translated(error: Exception, program: ExportedProgram, known: Any) -> str | None:
    """Which operator ONNX has nothing for, and the line that calls it; None for another reason.

    Args:
        error: what torch.onnx raised.
        program: that was translated.
        known: whether an operator is translated as it is.
    """
    cause: BaseException | None = error
    while cause is not None and "No ONNX function found" not in str(cause).splitlines()[0]:
        cause = cause.__cause__
    if cause is None:
        return None
    places = _PLACES.get(program, {})
    for node in program.graph.nodes:
        name = getattr(node.target, "_name", None)
        if isinstance(node.target, HigherOrderOperator) and name not in _WITH_FUNCTIONS:
            return (
                f"ONNX has nothing for the operator {name}{shown_place(program, node)}; in a "
                "branch on torch.compiler.is_exporting(), write it with plain PyTorch operators "
                "(attention with F.scaled_dot_product_attention), or with torch.cond"
            )
    # What failed may be a part that another operator was decomposed into.
    missing = [
        node
        for node in program.graph.nodes
        if isinstance(node.target, OpOverload) and not known(node.target)
    ]
    named = re.search(r"op='([\w.]+)', overload='(\w+)'", str(cause))
    exact = [n for n in missing if named and str(n.target) == ".".join(named.groups())]
    nodes = exact or missing
    if not nodes:
        return None
    shown = {str(n.target): f" at {places[n.name]}" if n.name in places else "" for n in nodes}
    operators = ", ".join(f"{name}{place}" for name, place in list(shown.items())[:3])
    one = "one of these operators" if len(shown) > 1 else "the operator"
    return (
        f"ONNX has nothing for {one} {operators}; write it with plain PyTorch operators, in a "
        "branch on torch.compiler.is_exporting() where another kernel is wanted elsewhere"
    )


def _packs(error: Exception) -> bool:
    """Whether a packed sequence was being made, or given to a recurrence."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    given = any(file.endswith(_RECURRENCE) for file in files) and "FakeTensor" in str(error)
    return given or any(file.endswith(_PACKING) for file in files)


def why_not_captured(error: Exception, fixed: Fixed, captured: dict[str, int]) -> str:
    """One sentence or two: what stopped capture, where, and what would fix it.

    Args:
        error: what torch.export raised.
        fixed: from :func:`watched`.
        captured: the size of each symbol that the exporter saw.
    """
    text = foreign(str(error))
    frozen = [
        name
        for name, size in captured.items()
        if f"marked {name} as dynamic" in text or (size in fixed.places and "specialized" in text)
    ]
    if frozen:
        name = frozen[0]
        place = fixed.places.get(captured[name])
        where = f" at {place}" if place is not None else ""
        return (
            f"axis {name} became fixed to {captured[name]}, the size it was captured with{where}; "
            "write that line with tensor operations on sizes of the input (no Python loop, int() "
            f'or constant of that size), or declare {name} = "{captured[name]}" as fixed'
        )
    place = place_of(error)
    where = f" at {place}" if place is not None else ""
    if _packs(error):
        return (
            f"a packed sequence has a size that depends on values in a tensor{where}, and a file "
            "holds one graph for all values; give the padded tensor to the recurrence: from left "
            "to right no real token sees padding on its right"
        )
    if isinstance(error, TypeError) and re.search(r"not Sym(Bool|Int|Float)", text):
        return (
            f"a size decides what must be a plain bool or number{where} ({text.splitlines()[0]}); "
            "give it one value for all declared sizes, or declare sizes for which it has one"
        )
    if "data-dependent" in text:
        return (
            f"what it does depends on values in a tensor{where}, and a file holds one graph for "
            "all values; use torch.where or a mask instead of a branch, .item() or int()"
        )
    if "Constraints violated" in text:
        said = [line.strip(" -") for line in text.splitlines()[1:] if line.strip(" -")]
        rules = said[0] if said else text
        rules = re.sub(r"(\w+) = (L\['\w+'\]\.size\(\)\[\d\])", r"\1", rules)
        rules = re.sub(r"L\['(\w+)'\]\.size\(\)\[(\d)\]", r"\1.size(\2)", rules)
        return (
            f"the declared sizes do not all work: {rules}; narrow the range in [symbols], or "
            "remove what ties the size"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2]) or 'no message'}{where}"
