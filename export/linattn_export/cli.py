"""``linattn-export``. Heavy imports are inside the functions: ``--help`` must be instant."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.command_line import takes
from linattn_runtime_checks.console import run

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Export linear-attention models to ONNX, TorchScript and torch.export, with proof.",
)


@app.command()
@takes(BuildRequest, before="quiet")
def build(
    request: BuildRequest,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Write a folder of artifacts, judge them against float64 and report on them.

    Exit codes: 0 all that was asked for is written and verified, 1 numbers, shapes or axes differ,
    2 usage, 3 an artifact cannot be made or loaded, 4 a runtime or package is missing, 5 written
    but not compared, 70 our bug. Names are listed by 'linattn-export list'.
    """
    from linattn_runtime_checks.contract.errors import UsageError

    if not request.check and request.runtimes:
        raise UsageError("`check=False` and `runtimes` exclude each other; leave one out")
    _require_torch()
    from linattn_export.build.pipeline import build as build_folder
    from linattn_runtime_checks.report.terminal import show

    report = build_folder(request)
    show(report, request.output, verbose=request.verbose, quiet=request.quiet)
    if json:
        print(report.model_dump_json(indent=2))
    sys.exit(int(report.exit_code))


@app.command("list")
def list_command(
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List methods, models, formats and runtimes, and why one is unavailable."""
    _require_torch()
    from linattn_export.listing import show_list

    show_list(json=json)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="An artifact or a folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print inputs, outputs, axes, opsets, IR, operators and metadata of an artifact."""
    from linattn_export.inspection import show_inspection

    show_inspection(path, json=json)


def _require_torch() -> None:
    from importlib.util import find_spec

    from linattn_runtime_checks.contract.errors import EnvironmentProblem

    if find_spec("torch") is None:
        raise EnvironmentProblem("torch is not installed; run: pip install 'linattn[export]'")


def main() -> None:
    """The console script."""
    run("linattn-export", app)
