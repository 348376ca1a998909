"""Times a checked folder: artifacts in a child process, live modules in this one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from linattn_runtime_checks.contract.manifest import Manifest
from linattn_runtime_checks.latency.schedule import Timed, measure
from linattn_runtime_checks.latency.subjects import Eager, Take, subjects
from linattn_runtime_checks.latency.turns import TurnTaker
from linattn_runtime_checks.processes.child import Child, ChildFailed, Limits
from linattn_runtime_checks.processes.progress import progress
from linattn_runtime_checks.processes.requests import Request
from linattn_runtime_checks.processes.turns import Times, Turn, TurnFailed
from linattn_runtime_checks.results.latency import LatencyTable
from linattn_runtime_checks.results.report import (
    Finding,
    Report,
    RuntimeResult,
)


def time_folder(
    folder: Path,
    manifest: Manifest,
    report: Report,
    eager: Mapping[str, Eager],
    *,
    threads: int,
    limits: Limits,
    isolate: bool,
    quiet: bool,
    only: Callable[[Timed], bool] = lambda entry: True,
) -> LatencyTable:
    """Time everything that passed, and note the time of opening it in ``report``.

    An artifact that fails while it is timed gets that as a finding. See :func:`subjects`.

    Raises:
        InternalFault: the child met a fault of ours.
    """
    results = {
        f"{artifact.id} on {outcome.runtime}": outcome
        for artifact in report.artifacts
        for outcome in artifact.runtimes
    }

    def failed(entry: Timed, error: TurnFailed) -> None:
        message = f"{entry.owner}: {error}"
        results[entry.owner].findings.append(Finding.of(error.code, message, check="process"))

    with (
        _taker(limits, isolate=isolate) as take,
        subjects(folder, manifest, report, eager, _noting(take, results), threads) as entries,
    ):
        chosen = [entry for entry in entries if only(entry)]
        lengths = len({entry.subject.sequence for entry in chosen})
        with progress("timing", lengths, quiet=quiet) as bar:
            return measure(chosen, threads, bar, failed)


@contextmanager
def _taker(limits: Limits, *, isolate: bool) -> Iterator[Take]:
    """Takes turns in a child, or here, where a debugger can follow."""
    if not isolate:
        taker = TurnTaker()
        try:
            yield taker
        finally:
            taker.close()
        return
    child = Child(limits)

    def take(turn: Turn) -> Times:
        try:
            answer = child.ask(Request(turn=turn))
        except ChildFailed as error:
            raise TurnFailed(error.code, str(error)) from error
        if answer.turn_failed is not None:
            raise TurnFailed(*answer.turn_failed)
        assert answer.times is not None
        return answer.times

    try:
        yield take
    finally:
        child.kill()


def _noting(take: Take, results: Mapping[str, RuntimeResult]) -> Take:
    def noting(turn: Turn) -> Times:
        times = take(turn)
        outcome = results[f"{turn.artifact.id} on {turn.runtime}"]
        if times.session_s is not None and outcome.session_ms is None:
            outcome.session_ms = times.session_s * 1e3
        return times

    return noting
