"""What the scripts that race layers at several lengths have in common: from options to page."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.speed import page
from benchmarks.speed.layers import FULL, QUICK, THREADS, Sizes
from benchmarks.speed.load import Watch

_QUICK_BUDGET_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The table, further tables by their heading, and what could not be measured."""

    rows: Sequence[page.Row]
    more: Mapping[str, Sequence[page.Row]] = field(default_factory=dict)
    notes: Sequence[str] = ()


Measure = Callable[[Path, Sizes, tuple[int, ...], float], Measured]
"""Of a folder to write to, sizes, lengths, and seconds of timing for each length."""


def run(
    description: str | None,
    measure: Measure,
    *,
    name: str,
    title: str,
    text: str,
    lengths: tuple[int, ...],
    budget_s: float,
    quick_lengths: tuple[int, ...] = (16, 64),
) -> None:
    """Measure and write; see :func:`page.write` for the words."""
    options = page.options_of(description, budget_s)
    torch.set_num_threads(THREADS)
    sizes = QUICK if options.quick else FULL
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(
            Path(folder),
            sizes,
            quick_lengths if options.quick else lengths,
            _QUICK_BUDGET_S if options.quick else options.budget,
        )
    page.write(
        options.output,
        name,
        title=title,
        text=f"{text} {page.PAIRED}",
        settings=f"{sizes.stated()}; Linformer R = {sizes.rank}, N_max = {sizes.max_length}",
        load=watch.stated(),
        rows=found.rows,
        more=found.more,
        notes=found.notes,
    )
