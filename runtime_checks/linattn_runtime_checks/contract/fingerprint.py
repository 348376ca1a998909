"""A few numbers that say which tensor this is, whatever its axes are called and however ordered."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

# Two runtimes round one tensor differently: on right artifacts of all methods by at most 1.2e-6 of
# a quantity's size in float32 and by 4e-4 in float16, whose steps are 1e-3 of an extreme. The rest,
# a factor of ten, is for processors that add up in another order. What is wrong by less than this
# cannot be located.
TOLERANCE = {"float32": 2e-5, "float64": 2e-5, "float16": 4e-3}

# Masked scores hold the lowest number of their dtype. Counted in, one of them would swamp every
# sum, and any scores at all would look right.
_FILL = 1e30


class Fingerprint(BaseModel):
    """What stays of a tensor under transpose, reshape and axes of size 1; summed in float64.

    Attributes:
        node: its name where it was computed.
        op: what computed it.
        count: number of elements.
        total: their sum; in all sums, finite numbers beyond 1e30 count as zero.
        absolute: sum of their absolute values.
        squares: sum of their squares.
        low: the smallest.
        high: the largest.
    """

    # NaN and infinities stand as themselves in JSON: as null they could not be read back.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    node: str
    op: str
    count: int
    total: float
    absolute: float
    squares: float
    low: float
    high: float

    @classmethod
    def of(cls, array: NDArray[Any], node: str, op: str) -> "Fingerprint":
        """The fingerprint of ``array``, of any shape and floating dtype.

        Raises:
            ValueError: it has no elements.
        """
        wide = np.asarray(array, dtype=np.float64).ravel()
        if not wide.size:
            raise ValueError(f"{node} has no elements: nothing to take a fingerprint of")
        sums = np.where(np.isfinite(wide) & (np.abs(wide) > _FILL), 0.0, wide)
        with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is NaN, which says enough
            return cls(
                node=node,
                op=op,
                count=wide.size,
                total=float(sums.sum()),
                absolute=float(np.abs(sums).sum()),
                squares=float(np.square(sums).sum()),
                low=float(wide.min()),
                high=float(wide.max()),
            )

    def matches(self, other: "Fingerprint", tolerance: float = TOLERANCE["float32"]) -> bool:
        """Whether both are of one tensor, up to rounding; symmetric.

        Args:
            other: of a tensor computed elsewhere.
            tolerance: largest difference, as a fraction of the natural size of each quantity.
        """
        if self.count != other.count:
            return False
        # A sum may cancel to nothing and the smallest element may be zero: neither has a size of
        # its own to measure its rounding by.
        absolute = max(self.absolute, other.absolute)
        largest = max(abs(x) for x in (self.low, self.high, other.low, other.high))
        pairs = (
            (self.total, other.total, absolute),
            (self.absolute, other.absolute, absolute),
            (self.squares, other.squares, max(self.squares, other.squares)),
            (self.low, other.low, largest),
            (self.high, other.high, largest),
        )
        return all(_close(mine, theirs, tolerance * size) for mine, theirs, size in pairs)


def _close(mine: float, theirs: float, allowed: float) -> bool:
    if not (math.isfinite(mine) and math.isfinite(theirs)):
        return mine == theirs or (math.isnan(mine) and math.isnan(theirs))
    return abs(mine - theirs) <= allowed or mine == theirs
