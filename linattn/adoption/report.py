"""What adopt() found and did, and how it is told."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A layer that ours stands in for now.

    ``paths``: where it is in the model, several for a shared layer. ``roundings``: the largest
    distance from the original in its own roundings; ``difference``: the largest in float64,
    relative to a row. ``notes``: what else is different.
    """

    paths: tuple[str, ...]
    layer: str
    method: str
    roundings: float
    difference: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A layer that is as it was, and why; ``roundings`` where outputs were compared."""

    paths: tuple[str, ...]
    layer: str
    reason: str
    roundings: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """What :func:`linattn.adopt` did; ``str`` of it is a table.

    ``model`` is the model given, or what stands in for it where it is itself such a layer.
    """

    model: nn.Module
    adopted: tuple[Adopted, ...]
    kept: tuple[Kept, ...]

    def __str__(self) -> str:
        if not self.adopted and not self.kept:
            return "no attention layer of a known package in this model"
        rows = [("where", "layer", "ours", "what was found")]
        for one in self.adopted:
            found = (
                f"differs by {one.roundings:.2g} roundings of the original, "
                f"{one.difference:.0e} in float64"
            )
            rows.append((_where(one.paths), one.layer, one.method, "; ".join((found, *one.notes))))
        rows.extend((_where(one.paths), one.layer, "kept", one.reason) for one in self.kept)
        return _table(rows)


def _where(paths: Sequence[str]) -> str:
    shown = [path or "(the model)" for path in paths]
    return ", ".join(shown)


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
