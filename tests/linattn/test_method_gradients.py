"""What every method promises of its cost, its gradients and what it leaves alone."""

import copy
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from linattn import METHODS, Method
from method_cases import (
    BATCH,
    HEADS,
    MASKS,
    D,
    E,
    assert_same,
    build,
    each_form,
    inputs,
    methods,
    modules,
    random_mask,
)
from siblings import siblings


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the most entries that any operation returned."""

    entries: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.entries = max(self.entries, result.numel())
        return result


@methods()
def test_memory_grows_as_its_cost_says(record: Method) -> None:
    def peak(n: int) -> int:
        module = build(record, n)
        with torch.no_grad(), LargestTensor() as largest:  # type: ignore[no-untyped-call]
            module(*inputs((), n), torch.ones(n, dtype=torch.bool))
        return int(largest.entries)

    # The tables of one chunk are larger than a short sequence.
    n = 4096 if record.capabilities.causal else 128
    assert peak(4 * n) / peak(n) == {"linear": 4, "quadratic": 16}[record.capabilities.cost]


def require_grad(module: nn.Module, *tensors: Tensor) -> list[Tensor]:
    return [*(x.requires_grad_() for x in tensors), *module.parameters()]


@methods()
@each_form
@pytest.mark.parametrize("masking", ["no mask", "random mask", "an empty sequence"])
def test_gradients_reach_inputs_and_parameters(record: Method, form: str, masking: str) -> None:
    module = modules(record.name)[form]
    q, k, v = inputs((BATCH, HEADS), 31)
    mask = MASKS[masking](31)
    leaves = require_grad(module, q, k, v)
    gradients = torch.autograd.grad(module(q, k, v, mask).square().sum(), leaves)
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert gradient.count_nonzero() > 0
    if mask is not None:
        padding = mask.logical_not()
        for gradient in gradients[1:3]:
            assert gradient.transpose(1, 2)[padding].eq(0).all()


@methods()
@pytest.mark.parametrize("zero", ["query", "key", "value"])
def test_gradients_are_finite_at_zero_rows(record: Method, zero: str) -> None:
    module = modules(record.name)["eager"]
    q, k, v = inputs((), 5)
    {"query": q, "key": k, "value": v}[zero][2] = 0
    leaves = require_grad(module, q, k, v)
    for gradient in torch.autograd.grad(module(q, k, v).sum(), leaves):
        assert gradient.isfinite().all()


@methods()
@pytest.mark.parametrize("masking", ["no mask", "right padding"])
def test_gradcheck(record: Method, masking: str) -> None:
    module = build(record, 4)
    q, k, v = inputs((BATCH,), 3, queries=3)
    mask = MASKS[masking](3)
    leaves = require_grad(module, q, k, v)
    assert torch.autograd.gradcheck(lambda *x: module(*x[:3], mask), leaves)


@methods()
@pytest.mark.parametrize(
    ("n", "masking"),
    siblings(
        [
            (4096, "no mask"),
            (70_000, "right padding"),
            (4096, "right padding"),
            (70_000, "no mask"),
        ],
        quick=2,
    ),
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sums_may_leave_the_range_of_half_precision(
    record: Method, n: int, dtype: torch.dtype, masking: str
) -> None:
    module = build(record, n).to(dtype)
    q, k, v = inputs((BATCH,), n, queries=3 if record.capabilities.cross_attention else None)
    # Positive: what the signs of a query cancel is noise in single precision, without a bound.
    q, k, v = q.abs().to(dtype), (k + 20).to(dtype), (v + 20).to(dtype)
    assert v.double().sum(dim=-2).min() > torch.finfo(torch.float16).max
    mask = MASKS[masking](n)
    output = module(q, k, v, mask)
    assert output.dtype == dtype
    exact = copy.deepcopy(module).double()(q.double(), k.double(), v.double(), mask).detach()
    assert_close(output.double(), exact, rtol=0, atol=tolerance_of_sums(n, dtype, exact))


def tolerance_of_sums(n: int, dtype: torch.dtype, exact: Tensor) -> float:
    """The output's own rounding, eps / 2, and what single precision costs a quotient of sums.

    Where no terms cancel, each of the two sums over n tokens loses n roundings of 2^-24 at most,
    in whatever order a processor's kernels add; some add small products one after the other.
    """
    allowed = torch.finfo(dtype).eps / 2 + n * torch.finfo(torch.float32).eps
    return float(allowed * exact.abs().max())


@pytest.mark.parametrize("name", ["elu", "relu", "taylor"])
def test_sums_that_stay_in_half_precision_are_outside_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 70_000
    module = build(METHODS[name], n).half()
    q, k, v = inputs((BATCH,), n, queries=3)
    q, k, v = q.abs().half(), (k + 20).half(), (v + 20).half()
    exact = copy.deepcopy(module).double()(q.double(), k.double(), v.double()).detach()
    home = sys.modules[type(module).__module__]
    monkeypatch.setattr(home, "widen", lambda x: x)
    apart = (module(q, k, v).double() - exact).abs().max()
    assert not apart <= tolerance_of_sums(n, torch.float16, exact)


@methods()
@each_form
def test_inputs_need_not_be_contiguous(record: Method, form: str) -> None:
    def strided(width: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        wide = torch.randn(BATCH, 31, HEADS, 2 * width, dtype=torch.float64, generator=generator)
        return wide[..., ::2].transpose(1, 2)

    q, k, v = strided(D, 0), strided(D, 1), strided(E, 2)
    mask = random_mask(31).T.contiguous().T
    assert not any(x.is_contiguous() for x in (q, k, v, mask))
    module = modules(record.name)[form]
    expected = module(q.contiguous(), k.contiguous(), v.contiguous(), mask.contiguous())
    assert_same(module(q, k, v, mask), expected)


@methods()
def test_inputs_are_left_as_they_were(record: Method) -> None:
    before = (*inputs((BATCH,), 31), random_mask(31))
    passed = tuple(x.clone() for x in before)
    modules(record.name)["eager"](*passed)
    assert all(torch.equal(x, y) for x, y in zip(passed, before, strict=True))
