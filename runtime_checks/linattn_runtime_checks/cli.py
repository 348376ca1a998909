"""``linattn-check``. Heavy imports are inside the functions: ``--help`` must be instant."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from linattn_runtime_checks.console import run

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that a build wrote.")],
    runtime: Annotated[
        list[str] | None,
        typer.Option("--runtime", metavar="NAME", help="Judge on this runtime only (repeat)."),
    ] = None,
    no_latency: Annotated[bool, typer.Option("--no-latency", help="Measure no latency.")] = False,
    summary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as Markdown to FILE.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print fixed variants' latencies too.")
    ] = False,
) -> None:
    """Judge the artifacts in DIR: files, signatures, numbers, refusals, latency.

    Needs no torch. Without --runtime every runtime that is available is used, and artifacts that
    none can run are listed as not judged. Exit codes: 0 pass, 1 numbers, shapes or axes differ,
    2 usage, 3 a file is damaged or does not load, 4 a runtime is missing, 5 nothing was compared,
    70 our bug. Files of the torchscript and pt2 formats run code when loaded: check only folders
    that you trust; files whose hash differs from the manifest are not loaded.
    """
    from linattn_runtime_checks.errors import UsageError
    from linattn_runtime_checks.manifest import read
    from linattn_runtime_checks.report.markdown import render
    from linattn_runtime_checks.report.terminal import show
    from linattn_runtime_checks.runner import CheckRequest, check_folder

    manifest = read(folder)
    request = CheckRequest(runtimes=tuple(runtime or ()), latency=not no_latency, quiet=quiet)
    report = check_folder(folder, manifest, request)
    show(report, folder, verbose=verbose, quiet=quiet)
    if summary is not None:
        try:
            summary.write_text(render(report), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--summary {summary} cannot be written: {error.strerror}") from error
    if json:
        print(report.model_dump_json(indent=2))
    sys.exit(int(report.exit_code))


def main() -> None:
    """The console script."""
    run("linattn-check", app)
