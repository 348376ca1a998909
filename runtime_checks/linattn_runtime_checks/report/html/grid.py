"""A table for the page: what every cell shows, what it sorts by and what it looks like."""

from dataclasses import dataclass

from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.report.html.values import sentence, sort_key
from linattn_runtime_checks.report.html.verdict import State, state_of
from linattn_runtime_checks.report.table import Table

NOTHING = "-"
_STATES: dict[str, State] = {code.name: state_of(code) for code in ExitCode}
_STATES["NOT JUDGED"] = "unsure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell; ``key`` is the number that it sorts by, if the column is one of numbers."""

    text: str
    key: float | None = None
    state: State | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One table; ``numeric`` says for each column whether it is one of numbers."""

    name: str
    title: str
    note: str
    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: list[list[Cell]]


def grid(name: str, table: Table) -> Grid:
    """``table`` for the page, under an ``name`` that is unique there."""
    columns = list(zip(*table.rows, strict=True)) if table.rows else [() for _ in table.headings]
    numeric = tuple(_is_numeric(column) for column in columns)
    rows = [
        [_cell(text, number) for text, number in zip(row, numeric, strict=True)]
        for row in table.rows
    ]
    return Grid(
        name=name,
        title=table.title,
        note=sentence(table.note),
        headings=table.headings,
        numeric=numeric,
        rows=rows,
    )


def _is_numeric(column: tuple[str, ...]) -> bool:
    filled = [text for text in column if text != NOTHING]
    return bool(filled) and all(sort_key(text) is not None for text in filled)


def _cell(text: str, number: bool) -> Cell:
    key = sort_key(text) if number and text != NOTHING else None
    return Cell(text=text, key=key, state=_STATES.get(text))
