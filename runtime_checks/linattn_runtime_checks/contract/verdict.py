"""The verdict: does an output differ from float64 by more than rounding explains?

    error(y)     = max over rows of ||y - y64|| / ||y64||, and the same over the whole tensor
    sensitivity  = the largest error(y) among a few float64 runs whose inputs and weights were
                   moved by up to one rounding unit of the artifact's dtype
    yardstick    = max(error(eager), SENSITIVITY_FACTOR * sensitivity)
    pass         = error(artifact) <= K * yardstick

On a hostile family, error(eager) is the largest over several inputs that are a few rounding units
apart: see ``linattn_export.golden.writing``.

Row error and whole error are judged each against its own yardstick: the row error sees one wrong
token among thousands, the whole error is the tighter of the two when one row is ill-conditioned.
The multiple printed is the larger quotient error / yardstick; PASS means it is at most K. Rows
that are exactly zero in float64 (masked sequences, queries without a positive feature) are zero by
definition and compared exactly. Shape, dtype and the positions of NaN, +inf and -inf come first.

Calibration of the constants: ``benchmarks/calibrate_verdict.py``, results and the smallest planted
fault that is still rejected in ``benchmarks/results/verdict_calibration.md``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.contract.codes import Code

K = 4.0
SENSITIVITY_FACTOR = 3.0
_SQUARED = 1e150
"""Above it the square of a number leaves the range of float64."""
INCONCLUSIVE_YARDSTICK = 0.05
"""Above this, rounding alone moves the output by 5% and more: such a case proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Relative distance to the float64 reference: largest row, and whole tensor."""

    row: float
    whole: float

    def largest(self, other: "Error") -> "Error":
        """The larger of each part."""
        return Error(row=max(self.row, other.row), whole=max(self.whole, other.whole))

    def times(self, factor: float) -> "Error":
        """Both parts scaled."""
        return Error(row=self.row * factor, whole=self.whole * factor)

    def multiple_of(self, allowed: "Error") -> float:
        """The larger quotient of the parts; infinite where nothing is allowed and there is some."""
        return max(_quotient(self.row, allowed.row), _quotient(self.whole, allowed.whole))


ZERO = Error(row=0.0, whole=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One output against its reference; ``code`` is ``pass`` or what is wrong."""

    code: Code
    message: str
    multiple: float | None = None
    row_error: float | None = None
    whole_error: float | None = None
    max_abs: float | None = None
    worst_index: tuple[int, ...] | None = None
    expected: float | None = None
    got: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the output is right."""
        return self.code is Code.PASS


def move(
    values: NDArray[np.float64],
    draw: NDArray[np.float64],
    eps: float,
    smallest_normal: float,
    units: float = 1.0,
) -> None:
    """Move every number by up to ``units`` rounding units of a dtype, in place.

    Below the smallest normal number the distance of neighbours shrinks no further. Zero, infinity
    and NaN stay as they are: a mask of -inf has no rounding.

    Args:
        values: what is moved.
        draw: from 0 to 1, of the same shape: from down to up.
        eps: of the dtype; half of it is the rounding unit.
        smallest_normal: of the dtype.
        units: how many of them, at most.
    """
    moves = np.isfinite(values) & (values != 0)
    unit = np.maximum(np.abs(values), smallest_normal) * (units * eps / 2)
    np.add(values, (2 * draw - 1) * unit, out=values, where=moves)


def yardstick(eager: Error, sensitivity: Error) -> Error:
    """What rounding costs this module on this input."""
    return eager.largest(sensitivity.times(SENSITIVITY_FACTOR))


def error_of(actual: NDArray[Any], expected: NDArray[np.float64]) -> Error:
    """Distance of ``actual`` to ``expected``.

    Rows of zeros in ``expected`` do not count, nor does what is not finite there. The distance is
    infinite where only ``actual`` is not finite. A row below the smallest normal number of
    ``actual``'s dtype counts as one of that size: the distance of neighbours shrinks no further,
    and a softmax that underflows is no loss.
    """
    finite = np.isfinite(expected)
    if not np.isfinite(actual[finite]).all():
        return Error(row=np.inf, whole=np.inf)
    if not finite.all():
        actual, expected = np.where(finite, actual, 0), np.where(finite, expected, 0.0)
    floor, largest = _floor(actual), np.abs(expected).max(initial=0.0)
    if largest > _SQUARED:
        actual, expected = actual / largest, expected / largest
    return _error(_rows(actual) - _rows(expected), _row_norms(_rows(expected)), floor)


def strays(one: NDArray[Any], other: NDArray[Any]) -> tuple[str, NDArray[np.bool_]] | None:
    """What is NaN, +inf or -inf in one of two arrays only, and where; None if nothing is."""
    if np.isfinite(one).all() and np.isfinite(other).all():
        return None
    for name, test in (("NaN", np.isnan), ("+inf", np.isposinf), ("-inf", np.isneginf)):
        differs = test(one) != test(other)
        if differs.any():
            return name, differs
    return None


def _floor(actual: NDArray[Any]) -> float:
    """The smallest normal number of single precision, or of half."""
    kind = actual.dtype if actual.dtype == np.float16 else np.dtype(np.float32)
    return float(np.finfo(kind).smallest_normal)


def _error(difference: NDArray[np.float64], norms: NDArray[np.float64], floor: float) -> Error:
    """From the rows of the difference, and the norms of the rows of the reference."""
    counted = norms > 0
    if not counted.any():
        return ZERO
    distances = _row_norms(difference)[counted]
    row = float((distances / np.maximum(norms[counted], floor)).max())
    whole = float(np.linalg.norm(distances)) / max(float(np.linalg.norm(norms)), floor)
    return Error(row=row, whole=whole)


def _row_norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return found


def compare(
    actual: NDArray[Any], expected: NDArray[np.float64], dtype: str, allowed: Error
) -> Comparison:
    """Judge one output.

    Args:
        actual: what the runtime returned.
        expected: the float64 reference.
        dtype: the dtype that the artifact promises, such as ``float32``.
        allowed: the yardstick of this case.
    """
    if actual.shape != expected.shape:
        return Comparison(
            code=Code.SHAPE_MISMATCH,
            message=f"shape {list(actual.shape)}, expected {list(expected.shape)}",
        )
    if str(actual.dtype) != dtype:
        return Comparison(
            code=Code.DTYPE_MISMATCH, message=f"dtype {actual.dtype}, expected {dtype}"
        )
    if not np.isfinite(allowed.row):
        return Comparison(
            code=Code.INCONCLUSIVE,
            message="PyTorch itself gives NaN or infinity here; nothing can be judged",
        )
    stray = strays(actual, expected)
    if stray is not None:
        name, differs = stray
        index = _first(differs)
        return Comparison(
            code=Code.NONFINITE_MISMATCH,
            message=f"{name} in {int(differs.sum())} position(s) on one side only",
            worst_index=index,
            expected=float(expected[index]),
            got=float(actual[index]),
        )
    finite = np.isfinite(expected)
    return _judge_finite(np.where(finite, actual, 0), np.where(finite, expected, 0.0), allowed)


def _judge_finite(
    actual: NDArray[Any], expected: NDArray[np.float64], allowed: Error
) -> Comparison:
    difference = actual.astype(np.float64) - expected
    position = int(np.abs(difference).argmax())
    index = tuple(int(i) for i in np.unravel_index(position, difference.shape))
    worst: dict[str, Any] = {
        "max_abs": abs(float(difference[index])),
        "worst_index": index,
        "expected": float(expected[index]),
        "got": float(actual[index]),
    }
    norms = _row_norms(_rows(expected))
    stray = np.abs(_rows(actual)[norms == 0])
    if stray.size and stray.max() > 0:
        return Comparison(
            code=Code.ZERO_ROW_NOT_ZERO,
            message=f"a row that is zero by definition holds {stray.max():.3g}",
            **worst,
        )
    error = _error(_rows(difference), norms, _floor(actual))
    multiple = error.multiple_of(allowed)
    numbers: dict[str, Any] = dict(
        multiple=multiple, row_error=error.row, whole_error=error.whole, **worst
    )
    if max(allowed.row, allowed.whole) > INCONCLUSIVE_YARDSTICK:
        return Comparison(
            code=Code.INCONCLUSIVE,
            message=(
                f"rounding alone moves this output by {max(allowed.row, allowed.whole):.2g} of "
                "its size; nothing can be judged here"
            ),
            **numbers,
        )
    if multiple <= K:
        return Comparison(code=Code.PASS, message="", **numbers)
    return Comparison(
        code=Code.PARITY_EXCEEDED,
        message=(
            f"{multiple:.3g}x the rounding of this input, at most {K:g}x allowed; relative error "
            f"{error.row:.2e} (worst row), worst element {list(index)}: "
            f"expected {worst['expected']:.9g}, got {worst['got']:.9g}"
        ),
        **numbers,
    )


def _rows(x: NDArray[Any]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = x.astype(np.float64, copy=False)
    return wide.reshape(-1, x.shape[-1]) if x.ndim else wide.reshape(1, 1)


def _quotient(error: float, allowed: float) -> float:
    if error == 0:
        return 0.0
    return error / allowed if allowed > 0 else float("inf")


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
