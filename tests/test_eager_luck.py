"""One run of eager may be lucky: on hostile inputs the yardstick is of several."""

import torch

from linattn_export.cases import _LIVE_FAMILY_LENGTH, CasePlan
from linattn_export.golden import _more_draws
from linattn_export.perturb import nearby_inputs


def plan(sequence: int, *, hostile: bool = True) -> CasePlan:
    return CasePlan(family="huge-token", stored=3, sequence=sequence, batches=(3,), hostile=hostile)


def test_hostile_inputs_are_drawn_again_and_long_ones_are_not() -> None:
    longest = _LIVE_FAMILY_LENGTH
    assert [_more_draws(plan(n)) for n in (1, 37, longest, longest + 1)] == [8, 8, 8, 0]
    assert _more_draws(plan(2, hostile=False)) == 0


def test_nearby_inputs_differ_by_a_few_units_and_keep_zeros_and_masks() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "x": torch.randn(64, 64, generator=generator) * 1e4,
        "zero": torch.zeros(4),
        "mask": torch.tensor([True, False]),
    }
    first, second = (nearby_inputs(inputs, torch.float32, run) for run in (0, 1))
    assert first["x"].dtype == torch.float32
    moved = (first["x"].double() / inputs["x"].double() - 1).abs().max() * 2**24
    assert 3 < moved <= 5, "four units, and what rounding to float32 adds"
    assert not torch.equal(first["x"], second["x"])
    assert torch.equal(first["zero"], inputs["zero"])
    assert first["mask"] is inputs["mask"]
