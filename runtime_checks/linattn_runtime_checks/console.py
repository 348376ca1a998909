"""What both commands share: how errors leave the process."""

import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import NoReturn

from linattn_runtime_checks.contract.errors import ExitCode, LinattnError
from linattn_runtime_checks.processes.progress import note_interrupts
from linattn_runtime_checks.results.environment import calm_threads

_INTERRUPTED = 130
_ISSUES = "report it with this text and the command you ran, at the project's issue tracker"


def run(program: str, command: Callable[[], object]) -> NoReturn:
    """Call ``command`` and exit with the code of what it raises.

    Errors of ours are one line; anything else is a fault of ours and shows where it happened.
    """
    calm_threads()
    note_interrupts()
    try:
        command()
    except LinattnError as error:
        _say(f"{program}: {error}")
        sys.exit(int(error.exit_code))
    except SystemExit as error:
        if error.code == _INTERRUPTED:  # typer's translation of KeyboardInterrupt
            _say(f"{program}: interrupted; what was there before is unchanged")
        raise
    except Exception as error:
        import traceback

        traceback.print_exc()
        version = metadata.version("linattn")
        _say(
            f"{program}: internal error ({type(error).__name__}) in linattn {version}, "
            f"Python {platform.python_version()}; {_ISSUES}"
        )
        sys.exit(int(ExitCode.INTERNAL))
    sys.exit(int(ExitCode.PASS))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
