"""What adopt() measures with: float64 whatever the code says, and distances in roundings."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fake_peers import WIDTH, drawn
from linattn import float64
from linattn.adoption.check import own_dtype
from linattn.adoption.rounding import Yardstick, copy_in, error_of, run
from linattn.adoption.trials import LENGTHS, padding, token_trials
from linattn.float64 import InDouble
from linattn_export.subjects import perturb
from linattn_runtime_checks.blame import kernels
from linattn_runtime_checks.contract.verdict import Error


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.float(),
        lambda x: x.to(torch.float32),
        lambda x: x.half().float(),
        lambda x: x.type(torch.float32),
        lambda x: torch.zeros(2) + x,
        lambda x: torch.ones(2, dtype=torch.float32) * x,
        lambda x: torch.arange(2, dtype=torch.float32) + x,
        lambda x: nn.functional.softmax(x, dim=-1, dtype=torch.float32),
        lambda x: [x.float()][0],
    ],
)
def test_no_cast_narrows(make: Any) -> None:
    x = torch.tensor([1 + 1e-12, 1.0], dtype=torch.float64)
    with InDouble():
        y = make(x)
    assert y.dtype == torch.float64
    assert y[0] != y[1] or make(x).dtype == torch.float32


def test_other_types_stay() -> None:
    with InDouble():
        assert torch.zeros(2, dtype=torch.int64).bool().dtype == torch.bool
    assert torch.zeros(2).dtype == torch.float32


def rows(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1)


def test_the_error_is_of_the_worst_row_and_of_the_whole() -> None:
    found = error_of([rows(1.1, 10.0)], [rows(1.0, 10.0)])
    assert found.row == pytest.approx(0.1)
    assert found.whole == pytest.approx(0.1 / 101**0.5)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (rows(1.0), rows(1.0, 1.0)),
        (rows(torch.nan), rows(1.0)),
        (rows(1.0), rows(torch.nan)),
        (rows(1e-9, 1.0), rows(0.0, 1.0)),
    ],
    ids=["shape", "NaN", "NaN expected", "zero by definition"],
)
def test_what_no_rounding_explains(mine: Tensor, theirs: Tensor) -> None:
    assert error_of([mine], [theirs]).row == float("inf")


def test_outputs_that_are_missing_count() -> None:
    assert error_of([rows(1.0)], [rows(1.0), rows(1.0)]).whole == float("inf")


def test_padding_does_not_count() -> None:
    real = torch.tensor([[True, False]])
    mine, theirs = rows(1.0, 5.0).unsqueeze(0), rows(1.0, 1.0).unsqueeze(0)
    assert error_of([mine], [theirs], real=real) == Error(row=0.0, whole=0.0)


def test_channels_may_be_another_axis() -> None:
    mine, theirs = torch.randn(2, 3, 4, 5, dtype=torch.float64), torch.ones(2, 3, 4, 5)
    moved = [x.movedim(1, -1) for x in (mine, theirs)]
    assert error_of([mine], [theirs], 1) == error_of([moved[0]], [moved[1]])


def test_a_rounding_is_of_the_size_of_the_type() -> None:
    layer = drawn().eval()
    trial = token_trials(WIDTH, hidden="x")[2]
    for dtype, low, high in ((torch.float32, 1e-8, 1e-5), (torch.float64, 1e-17, 1e-13)):
        yardstick = Yardstick(layer, dtype)
        expected = run(yardstick.exact, trial, torch.float64)
        own = yardstick.own_error(trial, expected)
        whole = yardstick.rounding(trial, expected, own)
        assert own.row <= whole.row
        assert low < whole.row < high


def test_the_layer_itself_is_not_changed() -> None:
    layer = drawn().train()
    before = {name: p.clone() for name, p in layer.named_parameters()}
    yardstick = Yardstick(layer, torch.float32)
    trial = token_trials(WIDTH, hidden="x")[0]
    yardstick.rounding(trial, [torch.ones(2, 1, WIDTH)], Error(row=0.0, whole=0.0))
    assert layer.training
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.requires_grad
        assert parameter.dtype == torch.float32


def test_copies_have_no_hooks() -> None:
    layer = drawn()
    layer.to_q.register_forward_hook(lambda *_: None)
    twin: Any = copy_in(layer, torch.float64)
    assert not twin.to_q._forward_hooks
    assert layer.to_q._forward_hooks


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_judged_in_single(dtype: torch.dtype) -> None:
    assert own_dtype(drawn().to(dtype)) == torch.float32
    assert own_dtype(drawn().double()) == torch.float64


def test_trials_are_short_and_long_plain_and_padded() -> None:
    trials = token_trials(WIDTH, hidden="x", mask="mask", longest=40)
    lengths = [trial.inputs["x"].shape[1] for trial in trials]
    assert set(lengths) == {n for n in LENGTHS if n < 40} | {40}
    masked = [trial for trial in trials if trial.real is not None]
    assert masked
    assert all(trial.inputs["mask"].any(dim=1).all() for trial in masked)
    assert not all(trial.inputs["mask"].all() for trial in masked)
    assert padding(6, left=True).tolist()[1] == [False, False, True, True, True, True]


def test_what_is_made_narrow_may_be_written_into() -> None:
    x = torch.tensor([1 + 1e-12, 1.0], dtype=torch.float64)
    with InDouble():
        y = torch.zeros(2)
        y[:] = x
        z = torch.zeros(2).add_(x)
    assert torch.equal(y, x)
    assert torch.equal(z, x)
    assert y.dtype == z.dtype == torch.float64


TINY = torch.finfo(torch.float32).smallest_normal


def weight_of(module: nn.Module) -> Tensor:
    weight: Tensor = module.state_dict()["weight"]
    return weight.flatten()


@pytest.mark.parametrize("numel", [6, 2 * float64._BLOCK + 5])
def test_every_mover_treats_small_numbers_alike(numel: int) -> None:
    values = torch.tensor([0.0, 1.0, -3.0, TINY, TINY / 64, -TINY / 1e6], dtype=torch.float64)
    wide = values.repeat(numel // 6 + 1)[:numel]
    unit = wide.abs().clamp(min=TINY) * torch.finfo(torch.float32).eps / 2
    weight = nn.Parameter(wide.float())
    linear = nn.Linear(1, 1, bias=False)
    linear.weight = nn.Parameter(wide.float().reshape(1, -1))
    with InDouble({id(weight)}), torch.no_grad():
        of_executor = weight + 0
    for found in (
        of_executor,
        perturb.moved_inputs({"x": wide.float()}, 0)["x"],
        weight_of(perturb.moved(linear.double(), torch.float32, 0)),
        weight_of(Yardstick(linear.float(), torch.float32).moved[0]),
        torch.from_numpy(kernels.moved(wide.float().numpy(), np.random.default_rng(0))),
    ):
        change = (found - wide.float().double()).abs()
        assert found.dtype == torch.float64
        assert (found[wide == 0] == 0).all()
        assert (change <= unit * 1.000001)[wide != 0].all()
        assert (change[wide != 0] > 0).double().mean() > 0.9


def test_a_mask_of_infinities_is_not_moved() -> None:
    mask = torch.full((8, 8), -torch.inf).triu(1)
    module = nn.Module()
    module.register_buffer("weight", mask)
    with InDouble({id(mask)}):
        of_executor = mask + 0
    for found in (
        of_executor.flatten(),
        weight_of(perturb.moved(module, torch.float32, 0)),
        weight_of(Yardstick(module, torch.float32).moved[0]),
        torch.from_numpy(kernels.moved(mask.flatten().numpy(), np.random.default_rng(0))),
    ):
        assert torch.equal(found.float(), mask.flatten())


def test_outputs_without_channels_are_equal() -> None:
    empty = torch.zeros(2, 0)
    assert error_of([empty], [empty]) == Error(row=0.0, whole=0.0)
