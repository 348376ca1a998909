"""Exponents of costs whose growth is known, and peaks of memory whose size is known."""

import ctypes
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from linattn_runtime_checks.cost import memory
from linattn_runtime_checks.cost.exponent import fit, fit_peak
from linattn_runtime_checks.cost.memory import peaks

LENGTHS = (128, 256, 512, 1024, 2048)


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:3]], ids=len)
@pytest.mark.parametrize("power", [1, 2])
def test_the_interval_holds_the_true_exponent(power: int, lengths: tuple[int, ...]) -> None:
    random = np.random.default_rng(7)
    inside = 0
    for _ in range(100):
        samples = {n: n**power * np.exp(0.1 * random.standard_normal(9)) for n in lengths}
        found = fit({n: list(values) for n, values in samples.items()})
        assert found is not None
        assert found.lengths == list(lengths)
        inside += found.low <= power <= found.high
    assert inside >= 90


def test_the_interval_shows_noise_and_curvature() -> None:
    exact = fit({n: [float(n)] * 4 for n in LENGTHS})
    assert exact is not None
    assert (exact.low, exact.high) == pytest.approx((1.0, 1.0))
    # The medians lie on the line; each is uncertain all the same.
    noisy = fit({n: [0.5 * n, n, 2.0 * n] for n in LENGTHS})
    assert noisy is not None
    assert noisy.high - noisy.low > 0.2
    curved = fit({n: [n + n**2 / 1000] for n in LENGTHS})
    assert curved is not None
    assert curved.low < curved.value - 0.1
    assert 1.0 < curved.value < 2.0


def test_too_few_lengths_have_no_exponent() -> None:
    assert fit({128: [1.0, 1.1], 256: [2.0]}) is None
    assert fit_peak({128: 10, 256: 20, 512: 0}) is None, "one call shows no peak"
    found = fit_peak({n: 3 * n**2 for n in LENGTHS})
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("samples", [[], [1.0, 0.0], [float("nan")]])
def test_samples_that_have_no_logarithm_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="length 256 has"):
        fit({128: [1.0], 256: samples, 512: [2.0]})


def test_peaks_rise_with_what_is_allocated() -> None:
    lengths = [4096, 8192, 16384, 32768]
    order: list[int] = []

    def run(kilobytes: int) -> object:
        order.append(kilobytes)
        return np.ones(kilobytes * 1024, dtype=np.uint8)

    found = peaks(run, lengths[::-1])
    if found is None:
        pytest.skip("no /proc whose peak can be reset, or no malloc_trim")
    assert order == lengths
    for shorter, longer in pairwise(lengths):
        assert found[longer] - found[shorter] == pytest.approx(1024 * (longer - shorter), rel=0.2)
    assert found[lengths[-1]] < 1.2 * 1024 * lengths[-1], "an array does not outlive its call"


def test_without_a_way_to_measure_there_are_no_peaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never: Callable[[int], object] = lambda length: pytest.fail("was called")  # noqa: E731
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "missing" / "clear_refs")
    assert peaks(never, [1, 2]) is None
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "missing")
    assert peaks(never, [1, 2]) is None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert peaks(never, [1, 2]) is None


def test_a_reset_that_does_nothing_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox that takes the write and keeps the peak."""
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "clear_refs")
    assert peaks(lambda length: np.ones(length, dtype=np.uint8), [2**25, 2**26]) is None
