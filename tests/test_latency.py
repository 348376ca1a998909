from collections.abc import Iterable
from itertools import chain, cycle, repeat

import pytest

from linattn_runtime_checks.latency import Timed, crossovers, measure
from linattn_runtime_checks.progress import Progress
from linattn_runtime_checks.report.model import LatencyResult


def timed(name: str, sequence: int, calls: list[str]) -> Timed:
    def call() -> None:
        calls.append(name)

    return Timed(
        model="layer",
        method=name,
        format="onnx",
        variant="dynamic",
        runtime="ort-cpu",
        batch=1,
        sequence=sequence,
        call=call,
    )


def result(method: str, sequence: int, p50: float, variant: str = "dynamic") -> LatencyResult:
    return LatencyResult(
        model="layer",
        method=method,
        format="onnx",
        variant=variant,
        runtime="ort-cpu",
        batch=1,
        sequence=sequence,
        runs=10,
        first_ms=p50,
        min_ms=p50,
        p50_ms=p50,
        p90_ms=p50,
    )


def test_entries_of_one_length_take_turns() -> None:
    calls: list[str] = []
    measure([timed("a", 8, calls), timed("b", 8, calls)], 1, Progress())
    turns = [name for i, name in enumerate(calls) if i == 0 or name != calls[i - 1]]
    assert len(turns) > 8
    assert turns == ["a", "b"] * (len(turns) // 2)


def test_lengths_are_measured_apart() -> None:
    calls: list[str] = []
    measure([timed("long", 16, calls), timed("short", 8, calls)], 1, Progress())
    assert calls == sorted(calls, reverse=True), "all of the short length before the long one"


class Clock:
    """Time that passes only in the calls that are timed; seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("linattn_runtime_checks.latency.time.perf_counter_ns", self.read)

    def read(self) -> int:
        return round(self.now * 1e9)

    def entry(self, durations: Iterable[float]) -> Timed:
        upcoming = iter(durations)

        def call() -> None:
            self.now += next(upcoming)

        blank = timed("x", 8, [])
        return Timed(**{name: getattr(blank, name) for name in blank.__slots__} | {"call": call})


def test_the_first_run_and_the_warm_up_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Clock(monkeypatch).entry(chain([7.0, 0.2, 0.04], repeat(0.01)))
    (found,) = measure([entry], 1, Progress()).results
    assert found.first_ms == pytest.approx(7000)
    assert found.min_ms == found.p50_ms == found.p90_ms == pytest.approx(10)


def test_the_first_run_of_every_turn_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Clock(monkeypatch).entry(chain([0.01] * 3, cycle([0.5, 0.01, 0.01])))
    (found,) = measure([entry], 1, Progress()).results
    assert found.p90_ms == pytest.approx(10)
    assert found.runs >= 4


def test_percentiles_are_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Clock(monkeypatch).entry(chain([1.0] * 2, cycle([1.0, 2.0, 3.0, 4.0])))
    (found,) = measure([entry], 1, Progress()).results
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
