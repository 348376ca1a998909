"""Variants: at which lengths and batches one artifact works."""

from dataclasses import dataclass
from typing import Literal

from linattn_runtime_checks.contract.errors import UsageError

PORTABLE = "portable"
Entry = Literal["forward", "prefill", "step"]
ENTRIES: tuple[Entry, ...] = ("forward", "prefill", "step")
"""The whole sequence at once; a piece of one from a state; one token from a state."""

# Sizes that the exporter sees. Not 0 or 1, which torch.export treats as special, and none of the
# sizes that the checks run.
_CAPTURE_BATCH, _CAPTURE_SEQUENCE = 6, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Sizes of an axis, both ends included; equal ends mean a fixed axis."""

    low: int
    high: int

    @property
    def fixed(self) -> bool:
        """Whether the axis has one size."""
        return self.low == self.high

    def clamp(self, size: int) -> int:
        """The size in the range that is nearest to ``size``."""
        return min(max(size, self.low), self.high)

    def __str__(self) -> str:
        return str(self.low) if self.fixed else f"{self.low}:{self.high}"


def parse_range(flag: str, text: str, *, fixed: bool) -> Range:
    """``MIN:MAX``, or one number where ``fixed`` allows it.

    Raises:
        UsageError: not numbers, below 1, or reversed.
    """
    example = "MIN:MAX or one number, such as 1:64" if fixed else "MIN:MAX, such as 1:4096"
    parts = text.split(":")
    if len(parts) not in ((1, 2) if fixed else (2,)):
        raise UsageError(f"{flag} must be {example}, got {text!r}")
    sizes = [positive(flag, part, f"; write {example}") for part in parts]
    low, high = sizes[0], sizes[-1]
    if low > high:
        raise UsageError(f"{flag} is reversed: {text!r}; write {high}:{low}")
    if low == high and not fixed:
        raise UsageError(
            f"{flag} {text!r} is one length; ask for a fixed variant: `lengths=[{low}]`"
        )
    return Range(low=low, high=high)


def positive(flag: str, text: str, hint: str = "") -> int:
    """A whole number of at least 1.

    Raises:
        UsageError: it is not.
    """
    number = whole(flag, text, hint)
    if number < 1:
        raise UsageError(f"{flag} must be at least 1, got {number}{hint}")
    return number


def whole(flag: str, text: str, hint: str = "") -> int:
    """A whole number.

    Raises:
        UsageError: it is not.
    """
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"{flag} must be a whole number, got {text!r}{hint}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One variant of an entry: ``dynamic``, or ``n512`` and the like.

    ``form`` is a name in :data:`linattn_export.options.onnx_forms.FORMS`; one that is not portable
    exists as ONNX only.
    """

    name: str
    sequence: Range
    batch: Range
    form: str = PORTABLE

    @property
    def length(self) -> int:
        """The only length that is accepted, 0 for a dynamic variant."""
        return self.sequence.low if self.sequence.fixed else 0

    @property
    def captured(self) -> dict[str, int]:
        """The sizes that the exporter sees."""
        return {
            "batch": self.batch.clamp(_CAPTURE_BATCH),
            "sequence": self.sequence.clamp(_CAPTURE_SEQUENCE),
        }

    def size(self, symbol: str) -> Range:
        """The range of a symbolic axis."""
        return {"batch": self.batch, "sequence": self.sequence}[symbol]


def make_variants(
    lengths: tuple[int, ...],
    dynamic: Range | None,
    batch: Range,
    suffix: str,
    *,
    entry: Entry = "forward",
    forms: tuple[str, ...] = (PORTABLE,),
) -> list[Variant]:
    """For each form the dynamic variant, then the fixed ones in ascending order.

    ``prefill`` takes pieces of any length, so fixed ones are made only where there is no dynamic
    variant; ``step`` is one variant, of one token.
    """
    one = Range(low=1, high=1)
    shapes: list[tuple[str, Range]] = []
    if entry == "step":
        shapes = [("step", one)]
    else:
        if dynamic is not None:
            shapes.append(("dynamic" if entry == "forward" else "prefill", dynamic))
        if entry == "forward" or dynamic is None:
            prefix = "" if entry == "forward" else "prefill-"
            shapes += [(f"{prefix}n{n}", Range(low=n, high=n)) for n in sorted(set(lengths))]
    return [
        Variant(
            name=name + suffix + ("" if form == PORTABLE else f"-{form}"),
            sequence=sequence,
            batch=batch,
            form=form,
        )
        for form in forms
        for name, sequence in shapes
    ]
