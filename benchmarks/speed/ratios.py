"""The ratio of two contenders from paired rounds, its interval, and whether it meets a goal."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["met", "missed", "inconclusive", "no goal"]

_RESAMPLES = 2000
_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a ratio has to be: at most, or at least, ``value``."""

    value: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.value:g}"

    def judge(self, low: float, high: float) -> Verdict:
        """``inconclusive`` where the interval holds values on both sides of the goal."""
        if self.at_least:
            low, high = -high, -low
        bound = -self.value if self.at_least else self.value
        if high <= bound:
            return "met"
        return "missed" if low > bound else "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The median over rounds of one time divided by another, and its 95 % interval."""

    value: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        digits = 1 if self.value >= 10 else 2
        return f"{self.value:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """The median of the ratios of each round; the interval by bootstrap over rounds.

    Raises:
        ValueError: the two do not have the same rounds, or none.
    """
    pairs = np.array([a / b for a, b in zip(numerator, denominator, strict=True)])
    if not len(pairs):
        raise ValueError("a ratio needs at least one round")
    drawn = np.random.default_rng(0).integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    medians = np.median(pairs[drawn], axis=1)
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Ratio(value=float(np.median(pairs)), low=float(low), high=float(high), rounds=len(pairs))


def median_ms(times: Sequence[float]) -> float:
    """The median in milliseconds."""
    return statistics.median(times) * 1e3
