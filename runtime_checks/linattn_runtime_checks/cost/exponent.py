"""The power of the length with which a measured cost grows: the slope between logarithms.

A cost of ``fixed + N`` has a slope below one where the fixed part is not small: what is reported
holds for the lengths that were measured, and approaches the true power as they grow.

A power is told only where its interval is too narrow to hold two whole powers, such as linear and
quadratic. The functions at the end are the only words that renderers have for one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

_MIN_LENGTHS = 3
_RESAMPLES = 1000
_NORMAL = 1.960
# The 97.5 % point of Student's t for 1, 2, .. degrees of freedom; beyond the table, the last.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

_SPAN = 8
_TWO_POWERS = 1.0
"""An interval that is as wide as this may hold two whole powers, and tells nothing."""
NOT_BOUNDED = "not measured well enough"
"""What is printed instead of a power whose interval tells nothing."""

Array = NDArray[np.float64]
T = TypeVar("T")


class Exponent(BaseModel):
    """The fitted power and its 95 % interval, and the lengths in tokens that it rests on."""

    value: float
    low: float
    high: float
    lengths: list[int]

    @property
    def bounded(self) -> bool:
        """Whether the interval is narrow enough to be a statement."""
        return self.high - self.low < _TWO_POWERS


def fit(samples: Mapping[int, Sequence[float]], *, seed: int = 0) -> Exponent | None:
    """Fit a power of the length to repeated measurements.

    The value is the least-squares slope of ``log(median)`` over ``log(length)``. The interval is
    the wider of two. One comes from the scatter of the medians about the line, with Student's t
    for the few lengths that there are; it holds noise as well as curvature, but may be narrow by
    chance. The other comes from the noise of the samples alone: the spread of the slope when the
    samples of each length are drawn again with replacement.

    Args:
        samples: length in tokens to measurements in any unit, all above zero.
        seed: of the drawing.

    Returns:
        The exponent; None for fewer than three lengths, through which any line would do.

    Raises:
        ValueError: a length or sample is not above zero and finite, or a length has no samples.
    """
    lengths = sorted(samples)
    for length in lengths:
        if length < 1 or not len(samples[length]):
            raise ValueError(
                f"length {length} has {len(samples[length])} samples; give lengths of at least 1, "
                "each with one sample or more"
            )
        if bad := [x for x in samples[length] if not 0 < x < math.inf]:
            raise ValueError(
                f"length {length} has the sample {bad[0]!r}; all must be above zero and finite"
            )
    if len(lengths) < _MIN_LENGTHS:
        return None
    medians = np.array([np.median(samples[length]) for length in lengths])
    random = np.random.default_rng(seed)
    drawn = np.stack(
        [
            np.median(random.choice(samples[length], (_RESAMPLES, len(samples[length]))), axis=1)
            for length in lengths
        ]
    )
    noise = float(np.std(_slopes(lengths, np.log(drawn))))
    return _exponent(lengths, np.log(medians), _NORMAL * noise)


def fit_peak(peaks: Mapping[int, int]) -> Exponent | None:
    """Fit a power of the length to one peak of memory per length.

    The same line as :func:`fit`; the interval comes from the scatter about it alone.

    Args:
        peaks: length in tokens to bytes. Those of zero or less are left out: such a call fitted
            into memory that the process already had, which says nothing about its size.

    Returns:
        The exponent; None for fewer than three lengths with a peak above zero.
    """
    lengths = sorted(length for length, peak in peaks.items() if peak > 0)
    if len(lengths) < _MIN_LENGTHS:
        return None
    return _exponent(lengths, np.log([float(peaks[length]) for length in lengths]), 0.0)


def _exponent(lengths: list[int], logs: Array, least: float) -> Exponent:
    """The slope through ``logs``, one for each length; ``least`` is the least half width."""
    x = np.log(lengths) - np.mean(np.log(lengths))
    slope = float(_slopes(lengths, logs[:, None])[0])
    residuals = logs - logs.mean() - slope * x
    freedom = len(lengths) - 2
    error = math.sqrt(float(residuals @ residuals) / freedom / float(x @ x))
    half = max(least, _STUDENT[min(freedom, len(_STUDENT)) - 1] * error)
    return Exponent(value=slope, low=slope - half, high=slope + half, lengths=lengths)


def _slopes(lengths: list[int], logs: Array) -> Array:
    """The least-squares slopes of ``logs [lengths, fits]`` over the logarithm of the lengths."""
    x = np.log(lengths) - np.mean(np.log(lengths))
    slopes: Array = x @ logs / (x @ x)
    return slopes


def asymptotic(measured: Mapping[int, T]) -> dict[int, T]:
    """What was measured from an eighth of the longest length on.

    Below it the fixed part of a cost is not small, and would make any growth look milder.
    """
    return {n: found for n, found in measured.items() if n * _SPAN >= max(measured)}


def power(found: Exponent | None) -> str:
    """Such as ``N^1.03``, for a label; empty where nothing can be told."""
    return f"N^{found.value:.2f}" if found is not None and found.bounded else ""


def cell(found: Exponent | None) -> str:
    """The power and its interval, for a table."""
    if found is None:
        return "-"
    if not found.bounded:
        return NOT_BOUNDED
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def sentence(found: Exponent) -> str:
    """How a curve grows and what that rests on, to follow the name of the curve."""
    lengths = f"{min(found.lengths)} to {max(found.lengths)} tokens"
    if not found.bounded:
        return f": growth {NOT_BOUNDED} ({lengths})"
    return f" grows as {power(found)} (95 %: {found.low:.2f} to {found.high:.2f}, {lengths})"
