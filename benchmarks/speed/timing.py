"""Times several calls so that drift of the machine hits all alike.

Everything takes turns. A turn is one call that is not counted, so that what ran before (its thread
pool, its data in the caches) does not count, and then timed calls, whose median is the turn's time.
A call of more than 50 ms goes without the first, which would change little, and is timed once in a
turn. Each round starts with another contender and every second round goes backwards, so that
nobody always follows the same neighbour. A round is the unit of the statistics in ``ratios.py``.
"""

import statistics
import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]
Rounds = dict[str, list[float]]
"""Contender to its seconds in each round."""

_LONG_CALL_S = 0.05
_RUNS_PER_TURN = 3
_VERY_LONG_CALL_S = 2.0
_MIN_ROUNDS, _MAX_ROUNDS = 5, 60


def interleave(calls: Mapping[str, Call], budget_s: float, rounds: int | None = None) -> Rounds:
    """Time all calls round by round.

    Args:
        calls: contenders by name.
        budget_s: how long all rounds together should take; from 5 to 60 rounds.
        rounds: their number, instead of the budget.

    Returns:
        Seconds by contender and round, all of the same length.
    """
    warm = {name: _warm_up(call) for name, call in calls.items()}
    if rounds is None:
        per_round = sum(warm[name] * (sum(_turn(warm[name]))) for name in calls)
        rounds = min(max(int(budget_s / per_round), _MIN_ROUNDS), _MAX_ROUNDS)
    found: Rounds = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds):
        for name in _order(names, number):
            uncounted, timed = _turn(warm[name])
            for _ in range(uncounted):
                calls[name]()
            found[name].append(statistics.median(seconds(calls[name]) for _ in range(timed)))
    return found


def seconds(call: Call) -> float:
    """How long one call takes."""
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) * 1e-9


def _warm_up(call: Call) -> float:
    """Two calls that load and allocate, then the time of a third; one of a very long call."""
    first = seconds(call)
    if first > _VERY_LONG_CALL_S:
        return first
    call()
    return seconds(call)


def _turn(warm_s: float) -> tuple[int, int]:
    """Calls that are not counted and calls that are, in one turn."""
    return (0, 1) if warm_s > _LONG_CALL_S else (1, _RUNS_PER_TURN)


def _order(names: list[str], number: int) -> list[str]:
    first = number // 2 % len(names)
    turned = names[first:] + names[:first]
    return turned[::-1] if number % 2 else turned
