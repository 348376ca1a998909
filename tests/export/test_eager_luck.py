"""One run of eager may be lucky: on hostile inputs the yardstick is of several."""

from pathlib import Path

import pytest
import torch

from linattn_export.golden.writing import _more_draws, run_double, write_golden
from linattn_export.inputs.cases import _LIVE_FAMILY_LENGTH, CasePlan
from linattn_export.inputs.drawing import draw
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_export.subjects.perturb import nearby_inputs
from linattn_runtime_checks.contract.verdict import error_of


def plan(sequence: int, *, hostile: bool = True) -> CasePlan:
    return CasePlan(family="huge-token", stored=3, sequence=sequence, batches=(3,), hostile=hostile)


def test_hostile_inputs_are_drawn_again_and_long_ones_are_not() -> None:
    longest = _LIVE_FAMILY_LENGTH
    elu, retention = make_subjects(BuildRequest(methods=("elu", "retention"), entries=("forward",)))
    assert [_more_draws(plan(n), elu) for n in (1, 37, longest, longest + 1)] == [8, 8, 8, 0]
    assert _more_draws(plan(2, hostile=False), elu) == 0
    assert _more_draws(plan(2, hostile=False), retention) == 8, "it divides rows by their size"


def test_nearby_inputs_differ_by_a_few_units_and_keep_zeros_and_masks() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "x": torch.randn(64, 64, generator=generator) * 1e4,
        "zero": torch.zeros(4),
        "mask": torch.tensor([True, False]),
    }
    first, second = (nearby_inputs(inputs, run) for run in (0, 1))
    assert first["x"].dtype == torch.float32
    moved = (first["x"].double() / inputs["x"].double() - 1).abs().max() * 2**24
    assert 3 < moved <= 5, "four units, and what rounding to float32 adds"
    assert not torch.equal(first["x"], second["x"])
    assert torch.equal(first["zero"], inputs["zero"])
    assert first["mask"] is inputs["mask"]


@pytest.mark.parametrize("hostile", [True, False])
def test_the_pack_holds_the_worst_of_all_runs_of_eager(hostile: bool, tmp_path: Path) -> None:
    request = BuildRequest(
        methods=("linformer",),
        lengths=(),
        dynamic="1:16",
        d_model=32,
        heads=2,
        options={"linformer": {"rank": 8, "max_length": 16}},
    )
    (subject,) = make_subjects(request)
    inputs = draw(
        subject.inputs, {"batch": 3, "sequence": 2}, family="huge-token", dtype=subject.dtype,
        seed=subject.seed, task=None, directions=subject.directions,
    )  # fmt: skip
    reference, eager = subject.double(), subject.eager()
    nearby = [nearby_inputs(inputs, run) for run in range(8)]
    errors = [error_of(eager(x).numpy(), run_double(reference, x)).row for x in (inputs, *nearby)]
    assert max(errors) > 1.2 * errors[0], "this input would not show it"
    index = write_golden(subject, tmp_path / "pack", [plan(2, hostile=hostile)])
    (case,) = index.cases
    assert case.eager_error.row == (max(errors) if hostile else errors[0])
