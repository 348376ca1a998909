"""``linattn-check``. Heavy imports are inside the functions: ``--help`` must be instant."""

import sys

import typer

from linattn_runtime_checks.command_line import takes
from linattn_runtime_checks.console import run
from linattn_runtime_checks.options import Options

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
@takes(Options)
def check(options: Options) -> None:
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

    act = command.self_test if options.self_test else command.check
    sys.exit(int(act(options)))


def main() -> None:
    """The console script."""
    run("linattn-check", app)
