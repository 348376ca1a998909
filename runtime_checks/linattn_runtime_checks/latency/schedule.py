"""The order of turns, so that drift of the machine hits everything alike.

For each length, everything that can run it takes turns. A turn is one run that is not counted, so
that what ran before (its thread pool, its data in the caches) does not count, and then timed runs;
a call of more than 50 ms goes without the first, which would change little, unless its tokens are
so many that the session is opened anew for each turn. The first run of a length and the creation of
the session are reported apart. Two runs after the first are not counted either, since TorchScript
specialises during them; one, where a run takes over a quarter of a second. The number of rounds
follows from a time budget and is the same for all entries of a length.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from linattn_runtime_checks.latency.machine import Machine
from linattn_runtime_checks.latency.table import crossovers, exponents, summed
from linattn_runtime_checks.processes.progress import Progress
from linattn_runtime_checks.processes.turns import Times, TurnFailed
from linattn_runtime_checks.results.latency import LatencySubject, LatencyTable

_RUNS_PER_TURN = 2
_MIN_ROUNDS, _MAX_ROUNDS = 2, 40
_BUDGET_S = 4.0  # for all rounds of one length
_LONG_CALL_S = 0.05
_VERY_LONG_CALL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One thing to time.

    ``turn(uncounted, counted)`` takes a turn, and raises TurnFailed. ``owner`` names what fails
    with it: an artifact on a runtime, at all its lengths. ``cold`` says that nothing is kept from
    one turn to the next, so that each goes through one run that is not counted.
    """

    owner: str
    subject: LatencySubject
    turn: Callable[[int, int], Times]
    cold: bool = False


@dataclass(slots=True)
class Samples:
    """What was seen of one entry; seconds."""

    first: float = 0.0
    warm: float = 0.0
    runs: list[float] = field(default_factory=list)


Failed = Callable[[Timed, TurnFailed], None]


def measure(
    entries: Sequence[Timed], threads: int, progress: Progress, failed: Failed
) -> LatencyTable:
    """Time all entries, those of one length interleaved; results in the order of ``entries``.

    Args:
        entries: what to time.
        threads: within one operator, to be stated.
        progress: told of every length.
        failed: told of an entry whose turn failed, once for each owner; nothing more of that owner
            is timed, and what was measured of it is left out.
    """
    before = _load()
    machine = Machine()
    samples = [Samples() for _ in entries]
    gone: set[str] = set()
    for sequence in sorted({entry.subject.sequence for entry in entries}):
        progress.step(f"latency at {sequence} tokens")
        group = [i for i, entry in enumerate(entries) if entry.subject.sequence == sequence]
        pairs = [(entries[i], samples[i]) for i in group]
        _measure_group(pairs, gone, failed, partial(machine.sample, sequence))
    timed = [(e, s) for e, s in zip(entries, samples, strict=True) if e.owner not in gone]
    results = [summed(entry.subject, sample.first, sample.runs) for entry, sample in timed]
    return LatencyTable(
        threads=threads,
        load_before=before,
        load_after=_load(),
        machine_ms=machine.medians(),
        results=results,
        crossovers=crossovers(results),
        exponents=exponents(results, [sample.runs for _, sample in timed]),
    )


def _measure_group(
    group: Sequence[tuple[Timed, Samples]],
    gone: set[str],
    failed: Failed,
    between: Callable[[], None],
) -> None:
    def turn(entry: Timed, uncounted: int, counted: int) -> Times | None:
        if entry.owner in gone:
            return None
        try:
            return entry.turn(uncounted, counted)
        except TurnFailed as error:
            gone.add(entry.owner)
            failed(entry, error)
            return None

    for entry, sample in group:
        _warm_up(entry, sample, turn)
    per_round = sum(sample.warm for _, sample in group) * (_RUNS_PER_TURN + 1)
    rounds = int(_BUDGET_S / per_round) if per_round else _MAX_ROUNDS
    for _ in range(min(max(rounds, _MIN_ROUNDS), _MAX_ROUNDS)):
        between()
        for entry, sample in group:
            uncounted = int(entry.cold or sample.warm < _LONG_CALL_S)
            times = turn(entry, uncounted, _RUNS_PER_TURN)
            if times is not None:
                sample.runs += times.seconds


def _warm_up(
    entry: Timed, sample: Samples, turn: Callable[[Timed, int, int], Times | None]
) -> None:
    first = turn(entry, 0, 1)
    if first is None:
        return
    sample.first = first.seconds[0]
    for _ in range(2):
        again = turn(entry, 0, 1)
        if again is None:
            return
        sample.warm = again.seconds[0]
        if sample.warm >= _VERY_LONG_CALL_S:
            return


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
