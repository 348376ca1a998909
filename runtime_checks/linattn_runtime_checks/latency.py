"""Latency, measured so that drift of the machine hits everything alike.

For each length, everything that can run it takes turns. A turn is one run that is not counted, so
that what ran before (its thread pool, its data in the caches) does not count, and then timed runs;
a call of more than 50 ms goes without the first, which would change little. The first run of a
length and the creation of the session are reported apart. Two runs after the first are not counted
either, since TorchScript specialises during them; one, where a run takes over a quarter of a
second. The number of rounds follows from a time budget and is the same for all entries of a length.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from linattn_runtime_checks.cost.exponent import Exponent, asymptotic, fit
from linattn_runtime_checks.progress import Progress
from linattn_runtime_checks.report.model import LatencyResult, LatencyTable

_RUNS_PER_TURN = 2
_MIN_ROUNDS, _MAX_ROUNDS = 2, 40
_BUDGET_S = 4.0  # for all rounds of one length
_LONG_CALL_S = 0.05
_VERY_LONG_CALL_S = 0.25
_CLEARLY_FASTER = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One thing to time: ``call()`` runs it once on inputs of ``batch`` and ``sequence``."""

    model: str
    method: str
    format: str
    variant: str
    runtime: str
    batch: int
    sequence: int
    call: Callable[[], object]


@dataclass(slots=True)
class _Samples:
    first: float = 0.0
    warm: float = 0.0
    runs: list[float] = field(default_factory=list)


def measure(entries: Sequence[Timed], threads: int, progress: Progress) -> LatencyTable:
    """Time all entries, those of one length interleaved; results in the order of ``entries``."""
    before = _load()
    samples = [_Samples() for _ in entries]
    for sequence in sorted({entry.sequence for entry in entries}):
        progress.step(f"latency at {sequence} tokens")
        group = [i for i, entry in enumerate(entries) if entry.sequence == sequence]
        _measure_group([entries[i] for i in group], [samples[i] for i in group])
    results = [_result(entry, s) for entry, s in zip(entries, samples, strict=True)]
    return LatencyTable(
        threads=threads,
        load_before=before,
        load_after=_load(),
        results=results,
        crossovers=crossovers(results),
        exponents=_exponents(entries, samples),
    )


def _exponents(entries: Sequence[Timed], samples: Sequence[_Samples]) -> dict[str, Exponent]:
    """``runtime/model/method`` to the power of the length with which its latency grows.

    Of dynamic artifacts; a name that several formats share belongs to one runtime each.
    """
    by_key: dict[str, dict[int, list[float]]] = {}
    for entry, sample in zip(entries, samples, strict=True):
        if entry.variant.startswith("dynamic"):
            key = f"{entry.runtime}/{entry.model}/{entry.method}"
            by_key.setdefault(key, {})[entry.sequence] = sample.runs
    fitted = {key: fit(asymptotic(runs)) for key, runs in by_key.items()}
    return {key: exponent for key, exponent in fitted.items() if exponent is not None}


def _measure_group(entries: Sequence[Timed], samples: Sequence[_Samples]) -> None:
    for entry, sample in zip(entries, samples, strict=True):
        sample.first = _time(entry)
        sample.warm = _time(entry)
        if sample.warm < _VERY_LONG_CALL_S:
            sample.warm = _time(entry)
    per_round = sum(sample.warm for sample in samples) * (_RUNS_PER_TURN + 1)
    rounds = int(_BUDGET_S / per_round) if per_round else _MAX_ROUNDS
    for _ in range(min(max(rounds, _MIN_ROUNDS), _MAX_ROUNDS)):
        for entry, sample in zip(entries, samples, strict=True):
            if sample.warm < _LONG_CALL_S:
                entry.call()
            sample.runs.extend(_time(entry) for _ in range(_RUNS_PER_TURN))


def _time(entry: Timed) -> float:
    start = time.perf_counter_ns()
    entry.call()
    return (time.perf_counter_ns() - start) * 1e-9


def _result(entry: Timed, samples: _Samples) -> LatencyResult:
    runs = np.array(samples.runs) * 1e3
    return LatencyResult(
        model=entry.model,
        method=entry.method,
        format=entry.format,
        variant=entry.variant,
        runtime=entry.runtime,
        batch=entry.batch,
        sequence=entry.sequence,
        runs=len(runs),
        first_ms=samples.first * 1e3,
        min_ms=float(runs.min()),
        p50_ms=float(np.percentile(runs, 50)),
        p90_ms=float(np.percentile(runs, 90)),
    )


def crossovers(results: Sequence[LatencyResult]) -> dict[str, int | None]:
    """``runtime/model/method`` to the shortest measured length from which it beats softmax.

    "From which": its median is lower by a tenth, which noise does not give, there and at every
    longer length that was measured. None if it is not at the longest. Dynamic artifacts only.
    """
    by_key: dict[tuple[str, str, str], dict[int, float]] = {}
    for result in results:
        if result.variant.startswith("dynamic"):
            key = (result.runtime, result.model, result.method)
            by_key.setdefault(key, {})[result.sequence] = result.p50_ms
    found: dict[str, int | None] = {}
    for (runtime, model, method), times in by_key.items():
        softmax = by_key.get((runtime, model, "softmax"))
        if softmax is None or method == "softmax":
            continue
        best: int | None = None
        for sequence in sorted(times.keys() & softmax.keys(), reverse=True):
            if times[sequence] > _CLEARLY_FASTER * softmax[sequence]:
                break
            best = sequence
        found[f"{runtime}/{model}/{method}"] = best
    return found


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
