"""Exit codes, and the errors that carry them.

LinattnError
UsageError           2   a flag, name or file that cannot be used
ExportError          3   an artifact that cannot be produced or loaded
EnvironmentProblem   4   a runtime, provider, package or version that is missing

Their messages name fields of a request in backticks; a command shows its flags instead
(:mod:`linattn_runtime_checks.contract.flags`).
"""

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """What the commands exit with."""

    PASS = 0
    PARITY = 1
    USAGE = 2
    EXPORT = 3
    ENVIRONMENT = 4
    UNVERIFIED = 5
    REGRESSION = 6
    INTERNAL = 70


_GRAVEST_FIRST = (
    ExitCode.INTERNAL,
    ExitCode.ENVIRONMENT,
    ExitCode.EXPORT,
    ExitCode.PARITY,
    ExitCode.REGRESSION,
    ExitCode.UNVERIFIED,
    ExitCode.PASS,
)


class LinattnError(Exception):
    """An error with a message for the user and an exit code."""

    exit_code = ExitCode.INTERNAL


class UsageError(LinattnError):
    """A flag, name or file that cannot be used."""

    exit_code = ExitCode.USAGE


class ExportError(LinattnError):
    """An artifact that cannot be produced or loaded."""

    exit_code = ExitCode.EXPORT


class EnvironmentProblem(LinattnError):
    """A runtime, provider, package or version that was asked for is missing."""

    exit_code = ExitCode.ENVIRONMENT


def gravest(codes: Iterable[ExitCode]) -> ExitCode:
    """The code to exit with when several occurred; PASS for none."""
    seen = set(codes)
    return next((code for code in _GRAVEST_FIRST if code in seen), ExitCode.PASS)


def foreign(words: str) -> str:
    """The words of somebody else's error, as part of a message of ours.

    Their backticks become quotes: what stands in backticks in a message of ours is a field.
    """
    return words.replace("`", "'")


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name: what it was, what is known, what was probably meant."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind}: {name!r}; known: {', '.join(names) or 'none'}{hint}"
