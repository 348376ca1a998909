"""The pages in ``docs/`` that are made from the tables of the product; see test_doc_pages.py."""

import inspect
from collections.abc import Sequence
from typing import Any

import typer.main

import linattn_export.cli
import linattn_runtime_checks.cli
from doc_cards import card, overview
from doc_markdown import NOTE, bullets, table, words
from linattn import NAMES, record_of
from linattn.adoption import PEERS
from linattn_export.listing import tables
from linattn_export.options.onnx_forms import FORMS, release
from linattn_runtime_checks.contract.errors import ExitCode
from roots import ROOT

DOCS = ROOT / "docs"
SITE = ROOT / "mkdocs.yml"
BEGIN = "      # cards: written by tests/write_docs.py\n"
END = "      # end of cards\n"


def pages() -> dict[str, str]:
    """Path below ``docs/`` to text."""
    cards = {f"methods/{name}.md": card(record_of(name)) for name in NAMES}
    return cards | {
        "methods/index.md": overview(),
        "reference/commands.md": commands(),
        "reference/tables.md": plug_ins(),
    }


def navigation() -> str:
    """The lines of ``mkdocs.yml`` that name the cards."""
    return "".join(f"      - {name}: methods/{name}.md\n" for name in NAMES)


def commands() -> str:
    """Every option of the commands."""
    export: Any = typer.main.get_command(linattn_export.cli.app)
    check: Any = typer.main.get_command(linattn_runtime_checks.cli.app)
    parts = [
        "# Commands",
        NOTE,
        "The same text is in `--help`. A flag that says *repeat* is given once for each value. In "
        "square brackets: what holds where the flag is left out.",
    ]
    for name, command in export.commands.items():
        parts += _command(f"linattn-export {name}", command)
    parts += _command("linattn-check", check)
    codes = [(str(int(code)), code.name) for code in ExitCode]
    parts += ["## Exit codes", table(("code", "name"), codes)]
    parts.append("The code of a run is the gravest of all findings: 70, 4, 3, 1, 6, 5, 0.")
    return "\n\n".join(parts) + "\n"


def _command(name: str, command: Any) -> list[str]:
    arguments = [p.metavar for p in command.params if p.param_type_name == "argument"]
    rows = []
    for parameter in command.params:
        if parameter.param_type_name == "argument" or "--help" in parameter.opts:
            continue
        flags = [f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts)]
        default = parameter.default
        shown = default not in (None, False) and not callable(default)
        value = "" if parameter.is_flag else f"`{parameter.metavar}`"
        rows.append(
            (", ".join(flags), value, words(parameter.help) + (f" [{default}]" if shown else ""))
        )
    usage = " ".join([name, *arguments])
    return [
        f"## {name}",
        f"`{usage}`",
        words(inspect.cleandoc(command.help)),
        table(("flag", "value", "meaning"), rows),
    ]


def plug_ins() -> str:
    """Models, formats, ONNX forms and runtimes."""
    parts = [
        "# Models, formats, runtimes",
        NOTE,
        "`linattn-export list` prints these, and what is not available where it runs, and why. "
        "The methods have [pages of their own](../methods/index.md).",
    ]
    for title, (headings, rows) in tables().items():
        if title != "methods":
            parts += [f"## {title.capitalize()}", table(headings, _coded(rows))]
    forms = [
        (
            f"`{form.name}`",
            form.title,
            f"{release(form.since)} and later",
            form.node,
            form.browser,
            form.openvino,
        )
        for form in FORMS.values()
    ]
    headings = ("form", "what it is", "ONNX Runtime", "Node.js", "browser", "OpenVINO")
    parts += ["## ONNX forms of a recurrence", table(headings, forms)]
    parts += ["## Layers that adopt replaces", _adopted()]
    schemas = sorted(path.name for path in DOCS.glob("*.schema.json"))
    parts += ["## JSON schemas", bullets([f"[{name}](../{name})" for name in schemas])]
    return "\n\n".join(parts) + "\n"


def _adopted() -> str:
    rows = [
        (peer.package, f"`{peer.layer.rsplit('.', 1)[1]}`", peer.versions, peer.method)
        for peer in PEERS.values()
    ]
    return table(("package", "layer", "releases compared with", "ours"), rows)


def _coded(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return [(f"`{first}`", *rest) for first, *rest in rows]
