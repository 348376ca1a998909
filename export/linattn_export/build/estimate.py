"""How much memory a build will take at most, from short runs; refused before the work, not after.

The live module is run at a few short lengths while the bytes of its tensors are counted. They grow
as a polynomial of second degree in the length, which gives those of the longest case. What a build
holds beside them was measured on builds of known size and rounded up. References run in pieces
(:mod:`linattn.pieces`), so of the part that grows with the square of the length they hold a block.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from linattn.pieces import BLOCK_SCORES, scores_beside
from linattn_export.build.live_bytes import LiveBytes
from linattn_export.capture.program import example_inputs
from linattn_export.live_module.switches import under
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.errors import UsageError

_SHORT = 1024
"""The longest of the runs whose bytes are counted."""
_PARENT, _CHILD = 0.6 * 2**30, 0.35 * 2**30
"""Bytes of a process with what it imports."""
_ARENA = 1.5
"""What a runtime takes for each byte of tensors: it asks for memory in growing blocks."""
_BLOCKS = 4
"""Blocks of scores, in float64, that a reference holds at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Bytes of tensors while one sequence runs: ``fixed + linear N + square N^2``."""

    fixed: float
    linear: float
    square: float

    def whole(self, length: int) -> float:
        """In one piece, as a runtime does."""
        return self.fixed + self.linear * length + self.square * length * length

    def in_pieces(self, length: int) -> float:
        """As the references of the models of linattn run."""
        return self.fixed + self.linear * length + min(
            self.square * length * length, _BLOCKS * BLOCK_SCORES
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of one subject: bytes of its float64 reference in this process, and of a runtime's child."""

    key: str
    length: int
    reference: float
    runtime: float

    def line(self) -> str:
        """For people."""
        return (
            f"{self.key} at {self.length:,} tokens: float64 reference {gibibytes(self.reference)}, "
            f"one runtime {gibibytes(self.runtime)}"
        )


def gibibytes(size: float) -> str:
    """``size`` bytes, for people."""
    return f"{size / 2**30:.1f} GiB"


def growth_of(subject: Subject) -> Growth | None:
    """From runs at short lengths; None where the module takes none of them, or no counting."""
    lengths = _lengths(subject)
    if lengths is None:
        return None
    runs: dict[int, float] = {}
    call = subject.eager()
    for length in lengths:
        variant = subject.variants[0]
        sizes = {"batch": variant.batch.low, "sequence": length}
        try:
            inputs = example_inputs(subject, variant, sizes)
            found = _counted(partial(call, inputs))
        except Exception:  # whatever it is, the build meets it too, and says what it means
            return None
        if found is None:
            return None
        runs[length] = found + sum(x.numel() * x.element_size() for x in inputs.values())
    return fit(runs)


def _lengths(subject: Subject) -> tuple[int, int, int] | None:
    """Three lengths to run; a module of one's own takes only those that it declares."""
    top = min(longest(subject), _SHORT)
    own = subject.is_own
    low = min(variant.sequence.low for variant in subject.variants) if own else 1
    return None if top // 4 < low else (top // 4, top // 2, top)


def _counted(call: Callable[[], object]) -> int | None:
    """The bytes that ``call`` holds at once; None where they cannot be counted."""
    counting = LiveBytes()
    with torch.no_grad():
        return None if under(counting, call) is None else counting.peak


def fit(runs: dict[int, float]) -> Growth:
    """The polynomial through three lengths; a power that a longer run does not need is left out."""
    (a, x), (b, y), (c, z) = sorted(runs.items())
    square = max(((z - y) / (c - b) - (y - x) / (b - a)) / (c - a), 0.0)
    linear = max((z - y) / (c - b) - square * (c + b), 0.0)
    return Growth(
        fixed=max(z - linear * c - square * c * c, 0.0), linear=linear, square=square
    )  # fmt: skip


def longest(subject: Subject) -> int:
    """The longest sequence that a case has."""
    return max(variant.sequence.high for variant in subject.variants)


def estimate_at(subject: Subject, growth: Growth, length: int) -> Estimate:
    """What ``growth`` comes to at ``length`` tokens."""
    own = subject.is_own
    widening = 8 / torch.finfo(subject.dtype).bits * 8
    tensors = growth.whole(length) if own else growth.in_pieces(length)
    return Estimate(
        key=subject.key,
        length=length,
        reference=_PARENT + widening * tensors,
        runtime=_CHILD + _ARENA * growth.whole(length),
    )


def needed(found: Sequence[Estimate], children: int, *, check: bool) -> float:
    """Bytes of the whole build.

    Artifacts are judged while the next reference is made. That several children are at their
    longest case at once is rare, so one of them counts in full.
    """
    reference = max(each.reference for each in found)
    if not check:
        return reference
    judging = max(each.runtime for each in found) + (children - 1) * _CHILD
    return max(reference, _PARENT + judging) if len(found) == 1 else reference + judging


def require_memory(
    subjects: Sequence[Subject],
    children: int,
    limit: float | None,
    *,
    check: bool,
    tell: Callable[[str], None],
) -> None:
    """Refuse a build that does not fit.

    Args:
        subjects: of the build.
        children: processes that judge at once.
        limit: bytes that it may take; None where nobody knows how many there are.
        check: whether artifacts are judged.
        tell: told of the largest estimate.

    Raises:
        UsageError: it needs more than ``limit``; says how much, and the longest that fits.
    """
    growths = {subject.key: (subject, growth_of(subject)) for subject in subjects}
    known = [(subject, growth) for subject, growth in growths.values() if growth is not None]
    found = [estimate_at(subject, growth, longest(subject)) for subject, growth in known]
    if not found:
        tell("memory   not estimated: the module takes no shorter length")
        return
    need = needed(found, children, check=check)
    largest = max(found, key=lambda each: max(each.reference, each.runtime))
    room = "" if limit is None else f" of {gibibytes(limit)}"
    tell(f"memory   at most about {gibibytes(need)}{room}; {largest.line()}")
    if limit is None or need <= limit:
        return
    length = largest.length
    while length > 1:
        length //= 2
        less = [_shorter(subject, growth, length) for subject, growth in known]
        if needed(less, children, check=check) <= limit:
            break
    fits = f"shorter lengths, such as {length}" if length > 1 else "a smaller model"
    raise UsageError(
        f"{largest.key} needs about {gibibytes(need)} of memory at {largest.length} tokens, and "
        f"there are {gibibytes(limit)}; ask for {fits}, or say with `memory_limit` GIB that there "
        "is more"
    )


def _shorter(subject: Subject, growth: Growth, length: int) -> Estimate:
    """If ``length`` were the longest that is asked for: more heads may then work at once."""
    length = min(length, longest(subject))
    square = growth.square * scores_beside(subject.module, length)
    return estimate_at(subject, replace(growth, square=square), length)
