import pytest

from linattn import DEFAULT_METHODS, METHODS
from linattn_export.inputs.cases import OTHER_LENGTH, CasePlan, plan_cases
from linattn_export.inputs.families import Directions, applicable
from linattn_export.options.request import BuildRequest
from linattn_export.options.variants import Range, make_variants
from linattn_export.subjects.making import make_subjects
from linattn_models import InputSpec
from linattn_runtime_checks.contract.golden_pack import MAX_TOKENS_PER_CASE

SPECS = (
    InputSpec(name="x", axes=("batch", "sequence", 4)),
    InputSpec(name="m", axes=("batch", "sequence"), kind="mask"),
)
MASKED = applicable(SPECS, mask=True, directions={})
DEFAULT = make_variants((128, 512, 1024), Range(low=1, high=4096), Range(low=1, high=64), "")


def shapes(plans: list[CasePlan]) -> set[tuple[int, int]]:
    return {(batch, plan.sequence) for plan in plans for batch in plan.batches}


def test_the_default_sweep_has_what_breaks_exports() -> None:
    lengths = {plan.sequence for plan in plan_cases(DEFAULT, [])}
    assert {1, 2, 3, 7, 17, 31, 127, 257, 509} <= lengths, "1, 2 and primes"
    for power in (32, 64, 128):
        assert {power - 1, power, power + 1} <= lengths
    assert max(lengths) == 4096, "the declared maximum"


def test_the_captured_sizes_are_run_and_crossed_with_others() -> None:
    """What was frozen at capture is right there, and wrong beside it: see frozen.py."""
    captured = DEFAULT[0].captured
    batch, length = captured["batch"], captured["sequence"]
    found = shapes(plan_cases(DEFAULT, []))
    assert (batch, length) in found
    assert any(n == length and b != batch for b, n in found)
    assert any(b == batch and n != length for b, n in found)
    others = {n for b, n in found if b != batch}
    assert min(others) < length < max(others), "shorter and longer ones"


def test_both_ends_of_the_batch_axis_are_run() -> None:
    batches = {batch for plan in plan_cases(DEFAULT, []) for batch in plan.batches}
    assert {1, 2, 64} <= batches


def test_a_large_batch_of_a_long_sequence_stops_at_the_budget() -> None:
    plans = plan_cases(DEFAULT, [])
    assert all(b * n <= MAX_TOKENS_PER_CASE for b, n in shapes(plans))
    assert (MAX_TOKENS_PER_CASE // 1024, 1024) in shapes(plans)


@pytest.mark.parametrize(
    ("lengths", "dynamic", "batch"),
    [
        ((1,), None, Range(low=1, high=1)),
        ((), Range(low=1, high=2), Range(low=1, high=64)),
        ((), Range(low=100, high=130), Range(low=3, high=3)),
        ((7, 9), Range(low=5, high=20_000), Range(low=2, high=5)),
        ((20_000,), None, Range(low=1, high=2)),
    ],
    ids=["one token", "tiny range", "fixed batch", "long range", "beyond the budget"],
)
def test_every_case_lies_in_what_was_declared(
    lengths: tuple[int, ...], dynamic: Range | None, batch: Range
) -> None:
    variants = make_variants(lengths, dynamic, batch, "")
    plans = plan_cases(variants, MASKED)
    others = [plan for plan in plans if plan.family == OTHER_LENGTH]
    assert len(others) == (dynamic is None and len(lengths) == 1), "only where there is no other"
    assert not {plan.sequence for plan in others} & set(lengths)
    plans = [plan for plan in plans if plan.family != OTHER_LENGTH]
    for size, length in shapes(plans):
        assert batch.low <= size <= batch.high
        assert any(v.sequence.low <= length <= v.sequence.high for v in variants)
    for variant in variants:
        own = {n for _, n in shapes(plans) if variant.sequence.low <= n <= variant.sequence.high}
        assert {variant.sequence.low, variant.sequence.high} <= own
    names = [plan.name for plan in plans]
    assert len(names) == len(set(names))


def test_every_length_is_timed_at_its_smallest_batch_and_one_at_a_larger_too() -> None:
    timed = {plan.sequence: plan.timed for plan in plan_cases(DEFAULT, []) if plan.timed}
    assert timed == {128: (1, 8), 512: (1,), 1024: (1,), 4096: (1,)}
    small = make_variants((), Range(low=1, high=128), Range(low=2, high=4), "")
    timed = {plan.sequence: plan.timed for plan in plan_cases(small, []) if plan.timed}
    assert timed == {128: (2,)}


def test_a_mask_adds_its_families_to_every_variant() -> None:
    plans = plan_cases(DEFAULT, MASKED)
    for family in ("right-padding", "left-padding", "inside-padding", "one-empty", "one-token"):
        of = [plan for plan in plans if plan.family == family]
        # Without a real token also where a mask is easily forgotten.
        shortest = {1} if family == "one-empty" else set()
        assert {plan.sequence for plan in of} == {37, 128, 512, 1024} | shortest
        assert all(plan.batches == (1, 3) for plan in of)


def test_the_default_pack_stays_in_its_budget() -> None:
    """Of 12 bytes for each number of each token: 36 MiB at the default width of 256."""
    directed: Directions = {"negative-features": {}, "near-zero-denominator": {}}
    families = applicable(SPECS[:1], mask=False, directions=directed)
    stored = sum(plan.stored * plan.sequence for plan in plan_cases(DEFAULT, families))
    assert stored <= 12_288


def test_where_no_method_is_named_the_default_ones_are_built() -> None:
    assert tuple(subject.method for subject in make_subjects(BuildRequest())) == DEFAULT_METHODS
    assert set(DEFAULT_METHODS) < set(METHODS)
    named = make_subjects(BuildRequest(methods=("performer",)))
    assert [subject.method for subject in named] == ["performer"]
