"""What the times of a run say: percentiles, intervals, growth, and who beats softmax from where."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.cost.exponent import Exponent, asymptotic, fit
from linattn_runtime_checks.results.latency import LatencyResult, LatencySubject

_CLEARLY_FASTER = 0.9
_NORMAL = 1.960


def summed(subject: LatencySubject, first: float, seconds: Sequence[float]) -> LatencyResult:
    """The result of one entry in milliseconds, from the first run and the counted ones."""
    runs = np.sort(np.array(seconds)) * 1e3
    low, high = median_interval(runs)
    return LatencyResult(
        **subject.model_dump(),
        runs=len(runs),
        first_ms=first * 1e3,
        min_ms=float(runs[0]),
        p50_ms=float(np.percentile(runs, 50)),
        p90_ms=float(np.percentile(runs, 90)),
        p99_ms=float(np.percentile(runs, 99)),
        low_ms=low,
        high_ms=high,
    )


def median_interval(ordered: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of the median of ``ordered`` samples, from their ranks alone.

    The number of samples below the median is binomial, whatever their distribution; of fewer than
    six, no two enclose it so surely, and the ends are the smallest and the largest.
    """
    count = len(ordered)
    half = _NORMAL * np.sqrt(count) / 2
    low = max(int(np.floor(count / 2 - half)), 0)
    high = min(int(np.ceil(count / 2 + half)), count - 1)
    return float(ordered[low]), float(ordered[high])


def exponents(
    results: Sequence[LatencyResult], runs: Sequence[Sequence[float]]
) -> dict[str, Exponent]:
    """``runtime/model/method`` to the power of the length with which its latency grows.

    Of dynamic artifacts at their smallest batch; a name that several formats share belongs to one
    runtime each.
    """
    by_key: dict[str, dict[int, Sequence[float]]] = {}
    for result, seconds in zip(results, runs, strict=True):
        if result.variant.startswith("dynamic") and result.batch == _smallest_batch(results):
            key = f"{result.runtime}/{result.model}/{result.method}"
            by_key.setdefault(key, {})[result.sequence] = seconds
    fitted = {key: fit(asymptotic(found)) for key, found in by_key.items()}
    return {key: exponent for key, exponent in fitted.items() if exponent is not None}


def crossovers(results: Sequence[LatencyResult]) -> dict[str, int | None]:
    """``runtime/model/method`` to the shortest measured length from which it beats softmax.

    "From which": its median is lower by a tenth, which noise does not give, and the intervals of
    the medians do not meet, there and at every longer length that was measured. None if that is
    not so at the longest. Dynamic artifacts at their smallest batch only.
    """
    by_key: dict[tuple[str, str, str], dict[int, LatencyResult]] = {}
    for result in results:
        if result.variant.startswith("dynamic") and result.batch == _smallest_batch(results):
            key = (result.runtime, result.model, result.method)
            by_key.setdefault(key, {})[result.sequence] = result
    found: dict[str, int | None] = {}
    for (runtime, model, method), times in by_key.items():
        softmax = by_key.get((runtime, model, "softmax"))
        if softmax is None or method == "softmax":
            continue
        best: int | None = None
        for sequence in sorted(times.keys() & softmax.keys(), reverse=True):
            mine, other = times[sequence], softmax[sequence]
            if mine.p50_ms > _CLEARLY_FASTER * other.p50_ms or mine.inconclusive(other):
                break
            best = sequence
        found[f"{runtime}/{model}/{method}"] = best
    return found


def _smallest_batch(results: Sequence[LatencyResult]) -> int:
    return min(result.batch for result in results)
