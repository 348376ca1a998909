"""What the scripts share: options, the JSON and Markdown they write, and the words of a row."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.speed.ratios import Goal, Ratio
from linattn_runtime_checks.results import environment

RESULTS = Path(__file__).parents[1] / "results"
Row = dict[str, Any]


def options_of(
    description: str | None,
    budget_s: float,
    further: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> argparse.Namespace:
    """``--quick``, ``--output``, ``--budget`` in seconds, and what ``further`` adds."""
    lines = (description or "").strip().splitlines()
    parser = argparse.ArgumentParser(description=lines[0] if lines else None)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, in seconds: shows that it runs, no more"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument(
        "--budget", type=float, default=budget_s, help="seconds of timing, of each length if any"
    )
    further(parser)
    return parser.parse_args()


def ratio_row(keys: Row, times: Row, ratio: Ratio, goal: Goal | None) -> Row:
    """One measured ratio: what it is of, both medians, the ratio, the goal and the verdict."""
    return {
        **keys,
        **times,
        "ratio": asdict(ratio),
        "goal": str(goal) if goal else None,
        "verdict": goal.judge(ratio.low, ratio.high) if goal else "no goal",
    }


def shown(value: object) -> str:
    """A cell."""
    if value is None:
        return ""
    if isinstance(value, dict) and "low" in value:
        return str(Ratio(**value))
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def table(rows: Sequence[Row]) -> list[str]:
    """A Markdown table of rows that have the same keys."""
    if not rows:
        return []
    columns = list(rows[0])
    return [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join('---' for _ in columns)} |",
        *[f"| {' | '.join(shown(row.get(column)) for column in columns)} |" for row in rows],
    ]


def machine(described: Row) -> str:
    """One line that states the machine."""
    versions = ", ".join(
        f"{name} {described[name]}"
        for name in ("python", "torch", "onnx", "onnxruntime", "numpy")
        if described.get(name)
    )
    place = f"{described['processor']}, {described['cores']} cores, {described['system']}"
    return f"Machine: {place}; {versions}."


def write(
    folder: Path,
    name: str,
    *,
    title: str,
    text: str,
    settings: str,
    load: str,
    rows: Sequence[Row],
    more: Mapping[str, Sequence[Row]] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write ``NAME.json`` and ``NAME.md``.

    Args:
        folder: where to.
        name: of the script, too.
        title: of the page.
        text: what the table holds.
        settings: sizes, threads and the like.
        load: what else the machine did, from ``load.py``.
        rows: the table.
        more: further tables by their heading.
        notes: sentences below the tables.
    """
    described: Row = environment.describe()
    document = {
        "environment": described,
        "settings": settings,
        "load": load,
        "rows": list(rows),
        "more": dict(more or {}),
        "notes": list(notes),
    }
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"speed_{name}"
    (folder / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    lines = [f"# {title}", "", f"`python -m benchmarks.speed.{name}`. {text}", ""]
    lines += [f"{settings}. {machine(described)} {load}.", "", *table(rows)]
    for heading, extra in (more or {}).items():
        lines += ["", f"## {heading}", "", *table(extra)]
    lines += ["", *[f"- {note}" for note in notes]] if notes else []
    (folder / f"{stem}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


PAIRED = (
    "Contenders take turns in one process; a ratio is the median over rounds of the ratio of the "
    "two times of a round, with its 95 % interval by bootstrap; `inconclusive` where the interval "
    "straddles the goal."
)
