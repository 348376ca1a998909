"""Which inputs the golden pack holds: lengths and batches that the exporter never saw."""

import math
import random
from dataclasses import dataclass, replace

from linattn_export.inputs.families import Family
from linattn_export.options.variants import Range, Variant
from linattn_runtime_checks.contract.golden_pack import MAX_TOKENS_PER_CASE

# Batch and length: 1, 2, primes, powers of two and their neighbours, lengths above the captured.
# Two sequences wherever that is cheap: a wrong weight may by chance not show in a single one.
_SWEEP = (
    (1, 1), (2, 2), (3, 3), (5, 7), (1, 16), (3, 17), (2, 31), (2, 32), (2, 33), (2, 61), (2, 63),
    (2, 64), (2, 65), (2, 127), (1, 128), (2, 129), (2, 251), (2, 257), (1, 509), (1, 512),
    (1, 1024),
)  # fmt: skip
OTHER_LENGTH = "other-length"
_FAMILY_SHAPE = (3, 37)
_LIVE_LENGTHS, _LIVE_FAMILY_LENGTH = 8, 96
_TIMED = (128, 512, 1024, 2048)
_TIMED_BATCH, _BATCHED_LENGTH = 8, 128


# A case stores few sequences and runs them over and over to fill its batch.
_STORED_SHORT, _STORED_LONG, _LONG = 3, 1, 257


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlan:
    """One input to draw: ``stored`` sequences, run at each of ``batches``; some are timed."""

    family: str
    part: str = ""
    """Tells cases of one family and one size apart."""
    stored: int
    sequence: int
    batches: tuple[int, ...]
    timed: tuple[int, ...] = ()
    hostile: bool = False

    @property
    def kind(self) -> str:
        """The family, and the part of it."""
        return f"{self.family}-{self.part}" if self.part else self.family

    @property
    def name(self) -> str:
        """Unique in a pack."""
        return f"{self.kind}-s{self.stored}-n{self.sequence}"

    def with_tokens(self, sequence: int) -> "CasePlan":
        """The same with another length."""
        return replace(self, sequence=sequence)

    def each_batch(self) -> "list[CasePlan]":
        """The same with every sequence stored, so that none is run twice in a batch."""
        return [
            replace(
                self,
                stored=batch,
                batches=(batch,),
                timed=tuple(size for size in self.timed if size == batch),
            )
            for batch in self.batches
        ]


def plan_cases(variants: list[Variant], families: list[Family]) -> list[CasePlan]:
    """The cases that all of ``variants`` need, sorted by length.

    Args:
        variants: of one model and method; all have the same batch range.
        families: that make sense for the model, besides ``normal``.
    """
    batch = variants[0].batch
    sweep: set[tuple[int, int]] = set()
    timed: set[int] = set()
    for variant in variants:
        low, high = variant.sequence.low, variant.sequence.high
        shapes = [(1, low), (1, high), (_largest(batch, low), low)]
        if variant.sequence.fixed:
            shapes.append((2, low))
        else:
            middle = variant.sequence.clamp(16)
            shapes += [(_largest(batch, middle), middle)]
            shapes += [(b, n) for b, n in _SWEEP if low <= n <= high]
            shapes += _around_captured(variant)
        if low <= _BATCHED_LENGTH <= high:
            shapes.append((_TIMED_BATCH, _BATCHED_LENGTH))
        sweep |= {(batch.clamp(size), length) for size, length in shapes}
        timed |= {high} | {n for n in _TIMED if low <= n <= high}
    plans = [
        CasePlan(
            family="normal",
            stored=_stored(max(sizes), length),
            sequence=length,
            batches=tuple(sorted(sizes)),
            timed=_timed_batches(sizes, length) if length in timed else (),
        )
        for length, sizes in _by_length(sweep).items()
    ]
    if len(plans) == 1:
        plans.append(_other_length(plans[0]))
    plans += _families(variants, families)
    return sorted(plans, key=lambda plan: (plan.sequence, plan.family))


def live_cases(
    variants: list[Variant],
    families: list[Family],
    chance: random.Random,
    longest: int = MAX_TOKENS_PER_CASE,
) -> list[CasePlan]:
    """Cases at lengths and batches that no build has stored, and every family once more.

    Args:
        variants: of one model and method.
        families: that make sense for the model, besides ``normal``.
        chance: source of lengths and batches.
        longest: no case has more tokens; a variant whose lengths are all above gets none.
    """
    plans: dict[str, CasePlan] = {}
    for variant in variants:
        low, high = variant.sequence.low, min(variant.sequence.high, longest)
        if low > high:
            continue
        lengths = {low} if low == high else {max(high - 1, low)}
        while len(lengths) < min(_LIVE_LENGTHS, high - low + 1):
            lengths.add(round(math.exp(chance.uniform(math.log(low), math.log(high)))))
        for length in sorted(lengths):
            most = min(_largest(variant.batch, length), max(longest // length, variant.batch.low))
            batch = chance.randint(variant.batch.low, most)
            stored = _stored(batch, length)
            plan = CasePlan(family="normal", stored=stored, sequence=length, batches=(batch,))
            plans[plan.name] = plan
    length = variants[0].sequence.clamp(chance.randint(2, _LIVE_FAMILY_LENGTH))
    batch = variants[0].batch.clamp(_FAMILY_SHAPE[0])
    for family in families:
        plan = CasePlan(
            family=family.name,
            hostile=family.hostile,
            stored=_stored(batch, length),
            sequence=length,
            batches=(batch,),
        )
        plans[plan.name] = plan
    return sorted(plans.values(), key=lambda plan: (plan.sequence, plan.family))


def _timed_batches(sizes: set[int], length: int) -> tuple[int, ...]:
    """The smallest batch; at one length also a larger one, as services run."""
    batched = {_TIMED_BATCH} & sizes if length == _BATCHED_LENGTH else set()
    return tuple(sorted({min(sizes)} | batched))


def _other_length(only: CasePlan) -> CasePlan:
    """An input that the only length there is must be seen to refuse; nobody takes it.

    Shorter where it can be: longer may be more than the module can take.
    """
    length = only.sequence - 1 or 2
    return CasePlan(family=OTHER_LENGTH, stored=1, sequence=length, batches=(min(only.batches),))


def verified_batch(variant: Variant) -> tuple[int, int]:
    """The batches that the cases of a variant run: to the declared end, or as far as tokens go."""
    batch = variant.batch
    return batch.low, _largest(batch, variant.sequence.low)


def _largest(batch: Range, length: int) -> int:
    """The declared end of the batch axis, or as far as the budget of tokens goes."""
    return batch.clamp(max(MAX_TOKENS_PER_CASE // length, 1))


def _stored(batch: int, length: int) -> int:
    return min(batch, _STORED_LONG if length > _LONG else _STORED_SHORT)


def _by_length(shapes: set[tuple[int, int]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for size, length in sorted(shapes):
        found.setdefault(length, set()).add(size)
    return found


def _around_captured(variant: Variant) -> list[tuple[int, int]]:
    """The captured batch and length, each with another of the other: see runtime_checks' frozen.

    The exporter saw both together; what it froze is right there and wrong elsewhere.
    """
    batch, length = variant.captured["batch"], variant.captured["sequence"]
    other_batch = variant.batch.clamp(batch // 2)
    other_length = variant.sequence.clamp(_FAMILY_SHAPE[1])
    return [(batch, length), (other_batch, length), (batch, other_length)]


def _families(variants: list[Variant], families: list[Family]) -> list[CasePlan]:
    """Each at one length of the dynamic variant, some at one of every variant.

    Most meet the same arithmetic in every variant; long fixed lengths would make the pack half as
    large again for them. Masks are tried in the smallest batch too, and without a real token at the
    smallest length: there a mask is dropped where nobody looks.
    """
    low, batch = variants[0].batch.low, variants[0].batch.clamp(_FAMILY_SHAPE[0])
    everywhere = {variant.sequence.clamp(_FAMILY_SHAPE[1]) for variant in variants}
    dynamic = {v.sequence.clamp(_FAMILY_SHAPE[1]) for v in variants if not v.sequence.fixed}
    shortest = {variant.sequence.low for variant in variants}
    plans = []
    for family in families:
        lengths = everywhere if family.every_variant else dynamic or {min(everywhere)}
        if family.empty_rows:
            lengths = lengths | shortest
        plans += [
            CasePlan(
                family=family.name,
                hostile=family.hostile,
                stored=_stored(batch, length),
                sequence=length,
                batches=tuple(sorted({low, batch})) if family.mask else (batch,),
            )
            for length in sorted(lengths)
        ]
    return plans
