import time

from linattn_runtime_checks.latency import Timed, crossovers, measure
from linattn_runtime_checks.progress import Progress
from linattn_runtime_checks.report.model import LatencyResult


def timed(name: str, sequence: int, calls: list[str], seconds: float = 0.0) -> Timed:
    def call() -> None:
        calls.append(name)
        time.sleep(seconds)

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


def test_the_first_run_and_the_warm_up_do_not_count() -> None:
    calls: list[str] = []

    def call() -> None:
        calls.append("x")
        time.sleep(0.05 if len(calls) == 1 else 0.0001)

    entry = timed("x", 8, [])
    entry = Timed(**{name: getattr(entry, name) for name in entry.__slots__} | {"call": call})
    (found,) = measure([entry], 1, Progress()).results
    assert found.first_ms >= 50
    assert found.p90_ms < 25
    assert found.runs < len(calls) - 3


def test_percentiles_are_in_milliseconds() -> None:
    (found,) = measure([timed("x", 8, [], seconds=0.004)], 1, Progress()).results
    assert 4 <= found.min_ms <= found.p50_ms <= found.p90_ms


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
