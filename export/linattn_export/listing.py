"""``linattn-export list``: methods, models, formats, runtimes and checks."""

import json as json_module

from rich.console import Console
from rich.table import Table
from rich.text import Text

from linattn import NAMES, record_of
from linattn_export.formats import FORMATS
from linattn_models import MODELS
from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.runtimes import RUNTIMES

Row = tuple[str, ...]


def tables() -> dict[str, tuple[Row, list[Row]]]:
    """Headings and rows of each table, from the registries; the README shows the same."""
    methods: list[Row] = [
        (
            record.name,
            record.title,
            record.formula,
            record.capabilities.cost,
            "yes" if record.capabilities.causal else "no",
            "yes" if record.capabilities.cross_attention else "no",
            "any" if record.capabilities.any_length else "up to max_length",
            record.source,
        )
        for record in map(record_of, NAMES)
    ]
    models: list[Row] = [
        (
            model.name,
            model.title,
            ("yes, or --no-mask" if model.masked else "optional") if model.masks else "no",
            "{}:{}".format(*model.dynamic_lengths),
            " ".join(map(str, model.fixed_lengths)),
        )
        for model in MODELS.values()
    ]
    formats: list[Row] = [(item.name, item.title, item.file_name) for item in FORMATS.values()]
    runtimes: list[Row] = [
        (item.name, item.title, ", ".join(item.formats)) for item in RUNTIMES.values()
    ]
    checks: list[Row] = [
        (check.name, check.title, ", ".join(check.codes)) for check in CHECKS.values()
    ]
    return {
        "methods": (
            ("method", "name", "formula", "cost", "causal", "cross-attention", "length", "source"),
            methods,
        ),
        "models": (("model", "what it is", "mask", "dynamic", "fixed"), models),
        "formats": (("format", "what it is", "file"), formats),
        "runtimes": (("runtime", "what it is", "formats"), runtimes),
        "checks": (("check", "what holds where it passes", "codes"), checks),
    }


def availability() -> dict[str, str | None]:
    """Why a format or runtime cannot be used here, None if it can."""
    found = {f"format {item.name}": item.unavailable() for item in FORMATS.values()}
    return found | {f"runtime {item.name}": item.unavailable() for item in RUNTIMES.values()}


def show_list(*, json: bool) -> None:
    """Print the tables, to stdout: they are the result."""
    reasons = availability()
    if json:
        document = {
            name: [dict(zip(headings, row, strict=True)) for row in rows]
            for name, (headings, rows) in tables().items()
        }
        print(json_module.dumps(document | {"unavailable": reasons}, indent=2))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=180)
    for name, (headings, rows) in tables().items():
        table = Table(*headings, title=name.capitalize(), box=None, title_justify="left")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        console.print()
    for what, reason in reasons.items():
        if reason is not None:
            console.print(f"not available: {what}: {reason}", markup=False, soft_wrap=True)
