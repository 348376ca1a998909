"""What capture takes for granted of the sizes, and at which declared sizes it is so.

While torch.export runs a module on symbolic sizes it meets questions (is this size 1? does 8 divide
it?) and answers them as they are for the sizes that it was captured with. Each answer is a guard. A
guard that holds at every declared size says nothing; whether it does is tried, size by size.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from linattn.torch_internals import (
    ASSERT_SCALAR,
    forget_guards,
    python_text,
    range_of,
    told_of_guards,
    tree_map,
)
from linattn_export.live_module.reasons import Place, caller
from linattn_export.options.variants import Variant

Point = tuple[int, int]
"""A batch and a sequence."""

_AXES = ("batch", "sequence")
_FULL_GRID = 2**14  # points
_SHOWN = 4


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """One answer: a condition of sympy, and the line of own code that asked."""

    condition: Any
    place: Place | None


@contextmanager
def recorded(found: list[Guard]) -> Iterator[None]:
    """Collect the guards of a capture; those of the layout in memory only are none."""

    def record(prefix: str, condition: Any) -> None:
        if "suppressed" not in prefix and all(condition != one.condition for one in found):
            found.append(Guard(condition, caller()))

    with told_of_guards(record):
        yield


@dataclass(slots=True, eq=False)
class Failing:
    """A guard that does not hold everywhere, the axes it is about, and where it does not."""

    guard: Guard
    axes: tuple[str, ...]
    points: set[Point]

    def leaves_one(self, variant: Variant) -> bool:
        """Whether the guard holds at one size of its axis only."""
        sizes = {point[_AXES.index(self.axes[0])] for point in self.points}
        size = variant.size(self.axes[0])
        return len(self.axes) == 1 and len(sizes) == size.high - size.low


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """A captured program, and what it takes for granted."""

    program: ExportedProgram
    guards: tuple[Guard, ...]
    symbols: Mapping[Any, str]
    """Symbol of the program, to the axis that it is the size of."""

    def failing(self, points: Sequence[Point]) -> list["Failing"]:
        """The guards that do not hold at all ``points``."""
        found = []
        for guard in self.guards:
            condition = self._known(guard.condition)
            if condition is None:
                continue
            holds = _function(condition, self.symbols)
            wrong = {point for point in points if not holds(dict(zip(_AXES, point, strict=True)))}
            if wrong:
                axes = {self.symbols[symbol] for symbol in condition.free_symbols}
                found.append(Failing(guard, tuple(sorted(axes)), wrong))
        return found

    def without_assertions(self) -> None:
        """Take out of the program what would be checked of the declared axes at every run."""
        graph = self.program.graph
        for node in list(graph.nodes):
            if node.target is ASSERT_SCALAR and (
                not isinstance(node.args[0], torch.fx.Node)
                or self._known(_condition_of(node.args[0])) is not None
            ):
                graph.erase_node(node)
        graph.eliminate_dead_code()
        self.program.graph_module.recompile()
        forget_guards(self.program)

    def declare(self, variant: Variant) -> None:
        """Give the program the declared ranges; a guard may have narrowed them."""
        for symbol, axis in self.symbols.items():
            size = variant.size(axis)
            self.program.range_constraints[symbol] = range_of(size.low, size.high)

    def computes_as(self, other: "Attempt") -> bool:
        """Whether both programs are the same, node by node."""
        return _rows(self.program) == _rows(other.program) and _same_constants(
            self.program, other.program
        )

    def _known(self, condition: Any) -> Any:
        """In symbols of the axes; None where it is about something else."""
        if condition is None:
            return None
        free = condition.free_symbols
        if not free <= self.symbols.keys():
            condition = self._env().replace(condition)
        return condition if condition.free_symbols <= self.symbols.keys() else None

    def _env(self) -> Any:
        for node in self.program.graph.nodes:
            for size in getattr(node.meta.get("val"), "shape", ()):
                if isinstance(size, torch.SymInt):
                    return size.node.shape_env
        raise AssertionError("a program with symbols has a tensor with one")


def symbols_of(
    program: ExportedProgram, axes: Sequence[tuple[str | int, ...]], variant: Variant
) -> dict[Any, str] | None:
    """The symbol of each axis that has a range; None where one became fixed, or tied to another.

    Args:
        program: that was captured.
        axes: of its inputs.
        variant: says which axes have a range.
    """
    found: dict[Any, str] = {}
    names = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for name, declared in zip(names, axes, strict=True):
        for axis, size in zip(declared, nodes[str(name)].meta["val"].shape, strict=True):
            if isinstance(axis, str) and axis in _AXES and not variant.size(axis).fixed:
                symbol = size.node.expr if isinstance(size, torch.SymInt) else None
                if (
                    not getattr(symbol, "is_symbol", False)
                    or found.setdefault(symbol, axis) != axis
                ):
                    return None
    return found


def points_of(variant: Variant) -> list[Point]:
    """Every declared pair of sizes; where they are many, every size with a few of the other."""
    batch, sequence = (range(variant.size(n).low, variant.size(n).high + 1) for n in _AXES)
    if len(batch) * len(sequence) <= _FULL_GRID:
        return [(one, other) for one in batch for other in sequence]
    few = [
        {sizes[0], variant.captured[name], sizes[len(sizes) // 3], sizes[-1]}
        for name, sizes in zip(_AXES, (batch, sequence), strict=True)
    ]
    return sorted(
        {(b, n) for b in few[0] for n in sequence} | {(b, n) for b in batch for n in few[1]}
    )


def describe(failing: Failing, variant: Variant) -> tuple[str, str | None]:
    """At which sizes, in words; and the range that has none of them, as a SPEC says it."""
    if len(failing.axes) != 1:
        batch, sequence = min(failing.points)
        return f"batch = {batch} with sequence = {sequence}", None
    axis = failing.axes[0]
    sizes = sorted({point[_AXES.index(axis)] for point in failing.points})
    low, high = variant.size(axis).low, variant.size(axis).high
    rest = _rest(sizes, low, high)
    return f"{axis} = {_words(sizes, low, high)}", rest and f'{axis} = "{rest}"'


def _words(sizes: Sequence[int], low: int, high: int) -> str:
    held = set(sizes)
    for factor in range(2, 65):
        if held == {n for n in range(low, high + 1) if n % factor}:
            return f"every size that is not a multiple of {factor}"
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][1] + 1:
            runs[-1][1] = size
        else:
            runs.append([size, size])
    shown = [str(a) if a == b else f"{a}:{b}" for a, b in runs[:_SHOWN]]
    more = f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
    return ", ".join(shown) + more


def _rest(sizes: Sequence[int], low: int, high: int) -> str | None:
    """The longest run of sizes between ``sizes``, if it has two or more."""
    ends = [low - 1, *sizes, high + 1]
    a, b = max(itertools.pairwise(ends), key=lambda pair: pair[1] - pair[0])
    return f"{a + 1}:{b - 1}" if b - a > 2 else None


def _condition_of(node: torch.fx.Node) -> Any:
    value = node.meta.get("val")
    return value.node.expr if isinstance(value, torch.SymBool) else None


def _function(condition: Any, symbols: Mapping[Any, str]) -> Any:
    """As a function of the sizes by axis; one that cannot be worked out does not hold."""
    text = python_text(condition)
    names = {str(symbol): axis for symbol, axis in symbols.items()}
    code = compile(text, "<guard>", "eval")
    space = {"math": math, "max": max, "min": min, "__builtins__": {}}

    def holds(sizes: Mapping[str, int]) -> bool:
        try:
            return bool(eval(code, space, {name: sizes[axis] for name, axis in names.items()}))
        except (ArithmeticError, ValueError):
            return False

    return holds


def _rows(program: ExportedProgram) -> list[Any]:
    """Every node with its arguments, by number and not by name."""
    number = {node: index for index, node in enumerate(program.graph.nodes)}

    def numbered(value: Any) -> Any:
        return ("node", number[value]) if isinstance(value, torch.fx.Node) else value

    return [
        (
            node.op,
            "" if node.op in ("placeholder", "output") else str(node.target),
            tree_map(numbered, [node.args]),
            tree_map(numbered, dict(node.kwargs)),
        )
        for node in program.graph.nodes
    ]


def _same_constants(one: ExportedProgram, other: ExportedProgram) -> bool:
    return one.constants.keys() == other.constants.keys() and all(
        torch.equal(value, other.constants[name])
        for name, value in one.constants.items()
        if isinstance(value, torch.Tensor)
    )
