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
    live: Annotated[
        bool, typer.Option("--live", help="Judge on fresh inputs and lengths too; needs torch.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Of the inputs and lengths of --live.")
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Plant faults in copies; each must be rejected."),
    ] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="What fails the check: verdicts and codes, comma-separated, such as "
            "parity,export,precision_lost. Default: every verdict but PASS.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the checks as JUnit XML to FILE.")
    ] = None,
    summary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a short Markdown report to FILE.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as one page to FILE.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="REPORT", help="Fail where size or latency got worse than in it."),
    ] = None,
    repro: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write a program that shows each failure to FOLDER."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="For one step of one artifact.")
    ] = 300.0,
    memory_limit: Annotated[
        float | None, typer.Option(metavar="GIB", help="For each child process. Default: none.")
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="No child processes, for a debugger.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print fixed variants' latencies too.")
    ] = False,
) -> None:
    """Judge the artifacts in DIR: files, signatures, numbers, refusals, cost, latency.

    Needs no torch. Without --runtime every runtime that is available is used, and artifacts that
    none can run are listed as not judged. Each artifact runs in a child process: a crash, a hang
    or a lack of memory is a verdict about that artifact, and the rest goes on. Exit codes: 0 pass,
    1 numbers, shapes or axes differ, 2 usage, 3 a file is damaged, does not load or kills its
    process, 4 a runtime is missing, 5 nothing was compared, 6 worse than the
    --baseline, 70 our bug. Files of the torchscript
    and pt2 formats run code when loaded: check only folders that you trust; files whose hash
    differs from the manifest are not loaded.
    """
    from linattn_runtime_checks import command

    options = command.Options(
        folder=folder,
        runtimes=tuple(runtime or ()),
        latency=not no_latency,
        live=live,
        seed=seed,
        fail_on=fail_on,
        junit=junit,
        summary=summary,
        html=html,
        baseline=baseline,
        repro=repro,
        json=json,
        time_limit=time_limit,
        memory_limit=memory_limit,
        isolate=not in_process,
        quiet=quiet,
        verbose=verbose,
    )
    sys.exit(int(command.self_test(options) if self_test else command.check(options)))


def main() -> None:
    """The console script."""
    run("linattn-check", app)
