from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, cycle, repeat

import numpy as np
import pytest

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.latency import schedule
from linattn_runtime_checks.latency.schedule import Timed
from linattn_runtime_checks.latency.table import crossovers, median_interval
from linattn_runtime_checks.latency.turns import time_runs
from linattn_runtime_checks.processes.progress import Progress
from linattn_runtime_checks.processes.turns import Times, TurnFailed
from linattn_runtime_checks.results.latency import LatencyResult, LatencySubject, LatencyTable


def measure(entries: list[Timed]) -> LatencyTable:
    def failed(entry: Timed, error: TurnFailed) -> None:
        raise AssertionError(f"{entry.owner}: {error}")

    return schedule.measure(entries, 1, Progress(), failed)


def timed(
    name: str, sequence: int, calls: list[str], call: Callable[[], None] | None = None
) -> Timed:
    def turn(uncounted: int, counted: int) -> Times:
        run = call or (lambda: calls.append(name))
        return Times(seconds=time_runs(run, uncounted, counted))

    return Timed(
        owner=name,
        subject=LatencySubject(
            model="layer",
            method=name,
            format="onnx",
            variant="dynamic",
            runtime="ort-cpu",
            batch=1,
            sequence=sequence,
        ),
        turn=turn,
    )


def result(
    method: str,
    sequence: int,
    p50: float,
    variant: str = "dynamic",
    spread: float = 0.0,
    batch: int = 1,
) -> LatencyResult:
    return LatencyResult(
        model="layer",
        method=method,
        format="onnx",
        variant=variant,
        runtime="ort-cpu",
        batch=batch,
        sequence=sequence,
        runs=10,
        first_ms=p50,
        min_ms=p50,
        p50_ms=p50,
        p90_ms=p50,
        p99_ms=p50,
        low_ms=p50 * (1 - spread),
        high_ms=p50 * (1 + spread),
    )


def test_entries_of_one_length_take_turns() -> None:
    calls: list[str] = []
    measure([timed("a", 8, calls), timed("b", 8, calls)])
    turns = [name for i, name in enumerate(calls) if i == 0 or name != calls[i - 1]]
    assert len(turns) > 8
    assert turns == ["a", "b"] * (len(turns) // 2)


def test_lengths_are_measured_apart() -> None:
    calls: list[str] = []
    measure([timed("long", 16, calls), timed("short", 8, calls)])
    assert calls == sorted(calls, reverse=True), "all of the short length before the long one"


class Clock:
    """Time that passes only in the calls that are timed; seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("linattn_runtime_checks.latency.turns.time.perf_counter_ns", self.read)

    def read(self) -> int:
        return round(self.now * 1e9)

    def entry(self, durations: Iterable[float]) -> Timed:
        upcoming = iter(durations)

        def call() -> None:
            self.now += next(upcoming)

        return timed("x", 8, [], call)


def test_the_first_run_and_the_warm_up_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Clock(monkeypatch).entry(chain([7.0, 0.2, 0.04], repeat(0.01)))
    (found,) = measure([entry]).results
    assert found.first_ms == pytest.approx(7000)
    assert found.min_ms == found.p50_ms == found.p90_ms == pytest.approx(10)


def test_the_first_run_of_every_turn_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Clock(monkeypatch).entry(chain([0.01] * 3, cycle([0.5, 0.01, 0.01])))
    (found,) = measure([entry]).results
    assert found.p90_ms == pytest.approx(10)
    assert found.runs >= 4


def test_percentiles_are_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Clock(monkeypatch).entry(chain([1.0] * 2, cycle([1.0, 2.0, 3.0, 4.0])))
    (found,) = measure([entry]).results
    assert found.runs == 4
    assert found.min_ms == pytest.approx(1000)
    assert found.p50_ms == pytest.approx(2500)
    assert found.p90_ms == pytest.approx(3700)


def test_crossover_is_the_length_from_which_a_method_stays_faster() -> None:
    results = [result("softmax", n, float(n)) for n in (128, 512, 1024, 4096)]
    results += [result("elu", 128, 1.0), result("elu", 512, 600.0)]
    results += [result("elu", 1024, 900.0), result("elu", 4096, 1000.0)]
    assert crossovers(results) == {"ort-cpu/layer/elu": 1024}


def test_a_method_that_is_slower_at_the_end_has_no_crossover() -> None:
    results = [result("softmax", 128, 2.0), result("softmax", 512, 2.0)]
    results += [result("elu", 128, 1.0), result("elu", 512, 3.0)]
    assert crossovers(results) == {"ort-cpu/layer/elu": None}


def test_a_difference_within_the_noise_is_no_crossover() -> None:
    assert crossovers([result("softmax", 64, 1.0), result("elu", 64, 0.95)]) == {
        "ort-cpu/layer/elu": None
    }


def test_fixed_variants_do_not_enter_crossovers() -> None:
    results = [result("softmax", 128, 2.0, "n128"), result("elu", 128, 1.0, "n128")]
    assert crossovers(results) == {}


def test_overlapping_intervals_are_no_crossover() -> None:
    apart = [result("softmax", 64, 1.0, spread=0.1), result("elu", 64, 0.7, spread=0.1)]
    assert crossovers(apart) == {"ort-cpu/layer/elu": 64}
    close = [result("softmax", 64, 1.0, spread=0.2), result("elu", 64, 0.7, spread=0.2)]
    assert close[1].inconclusive(close[0])
    assert crossovers(close) == {"ort-cpu/layer/elu": None}


def test_larger_batches_do_not_enter_crossovers() -> None:
    results = [result("softmax", 64, 2.0), result("elu", 64, 1.0)]
    results += [result("softmax", 64, 1.0, batch=8), result("elu", 64, 9.0, batch=8)]
    assert crossovers(results) == {"ort-cpu/layer/elu": 64}


def test_the_interval_of_the_median_covers_it_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    for count in (4, 9, 24, 80):
        drawn = np.sort(random.exponential(size=(4000, count)), axis=1)
        ends = np.array([median_interval(row) for row in drawn])
        covered = np.mean((ends[:, 0] <= np.log(2)) & (np.log(2) <= ends[:, 1]))
        # Four samples have no wider pair than their ends, which cover 1 - 2 / 16.
        assert covered >= (0.87 if count == 4 else 0.94), count
        assert covered <= 0.99, count


def test_what_fails_in_its_turn_is_told_once_and_left_out() -> None:
    calls: list[str] = []
    told: list[tuple[str, Code]] = []

    def turn(uncounted: int, counted: int) -> Times:
        calls.append("b")
        if len(calls) > 6:
            raise TurnFailed(Code.RUNTIME_CRASHED, "died")
        return Times(seconds=[0.1] * counted)

    broken = [replace(timed("b", sequence, calls), turn=turn) for sequence in (8, 16)]
    entries = [timed("a", 8, []), *broken, timed("a", 16, [])]
    table = schedule.measure(
        entries, 1, Progress(), lambda entry, error: told.append((entry.owner, error.code))
    )
    assert told == [("b", Code.RUNTIME_CRASHED)]
    assert [(r.method, r.sequence) for r in table.results] == [("a", 8), ("a", 16)]
    assert len(calls) == 7, "it is not asked again, at no length"
