"""What every method promises, asked of every record in METHODS."""

import copy
import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from linattn import METHODS, Capabilities, Method, MethodError, method

torch.set_num_threads(1)  # the tensors are tiny

BATCH, HEADS, D, E = 3, 2, 4, 5
N_MAX = 80  # of the methods whose weights bound the length

AXES = {"[N,D]": (), "[B,N,D]": (BATCH,), "[B,H,N,D]": (BATCH, HEADS)}
LENGTHS = (1, 2, 3, 31, 64, 65)


def real_tokens(n: int, lengths: list[int]) -> Tensor:
    return torch.arange(n) < torch.tensor(lengths).unsqueeze(1)


def random_mask(n: int) -> Tensor:
    return torch.rand(BATCH, n, generator=torch.Generator().manual_seed(n)) < 0.5


MASKS: dict[str, Callable[[int], Tensor | None]] = {
    "no mask": lambda n: None,
    "right padding": lambda n: real_tokens(n, [n, (n + 1) // 2, 1]),
    "left padding": lambda n: real_tokens(n, [n, (n + 1) // 2, 1]).flip(-1),
    "random mask": random_mask,
    "an empty sequence": lambda n: real_tokens(n, [n, 0, 1]),
}


def methods(where: Callable[[Capabilities], bool] = lambda c: True) -> pytest.MarkDecorator:
    chosen = [record for record in METHODS.values() if where(record.capabilities)]
    return pytest.mark.parametrize("record", chosen, ids=lambda record: record.name)


each_axes = pytest.mark.parametrize("axes", AXES.values(), ids=AXES.keys())
each_length = pytest.mark.parametrize("n", LENGTHS, ids=lambda n: f"N={n}")
each_mask = pytest.mark.parametrize("masking", MASKS)
each_form = pytest.mark.parametrize("form", ["eager", "scripted"])


def fields(record: Method, kind: object) -> list[str]:
    return [f.name for f in dataclasses.fields(record.config) if f.type == kind]


def bound(record: Method, n_max: int) -> dict[str, int]:
    return {} if record.capabilities.any_length else {"max_length": n_max}


def build(record: Method, n_max: int = N_MAX, **options: Any) -> Any:
    """The module in float64, small whatever its options are called."""
    torch.manual_seed(0)
    small = dict.fromkeys(fields(record, int), 6)
    return record.module(record.configure(small | bound(record, n_max) | options)).double()


@functools.cache
def modules(name: str) -> dict[str, nn.Module]:
    eager = build(METHODS[name])
    return {"eager": eager, "scripted": torch.jit.script(eager)}


def inputs(
    axes: tuple[int, ...], n: int, *, queries: int | None = None, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*axes, *shape, dtype=torch.float64, generator=generator)

    return normal(n if queries is None else queries, D), normal(n, D), normal(n, E)


def mask_for(axes: tuple[int, ...], masking: str, n: int) -> Tensor | None:
    mask = MASKS[masking](n)
    return mask[1] if mask is not None and not axes else mask


def oracle(record: Method, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
    return record.oracle(q, k, v, mask, module.config, dict(module.named_parameters()))


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """Equal to 1e-12 of the largest entry, both in float64."""
    largest = expected.detach().abs().max().item()
    assert_close(actual, expected, rtol=0, atol=1e-12 * largest)


@methods()
def test_is_listed_under_its_name_and_keeps_its_config(record: Method) -> None:
    assert method(record.name) is record
    assert record.configure({}) == record.config()
    config = record.configure(bound(record, N_MAX))
    assert record.module(config).config is config
    assert ("max_length" in fields(record, int)) != record.capabilities.any_length


@methods()
@each_axes
@each_length
@each_mask
def test_equals_its_oracle(record: Method, axes: tuple[int, ...], n: int, masking: str) -> None:
    module = modules(record.name)["eager"]
    q, k, v = inputs(axes, n)
    mask = mask_for(axes, masking, n)
    output = module(q, k, v, mask)
    assert output.shape == (*axes, n, E)
    assert_same(output, oracle(record, module, q, k, v, mask))


@methods()
@each_axes
@each_length
@each_mask
def test_scripted_equals_eager(record: Method, axes: tuple[int, ...], n: int, masking: str) -> None:
    q, k, v = inputs(axes, n)
    mask = mask_for(axes, masking, n)
    eager, scripted = (form(q, k, v, mask) for form in modules(record.name).values())
    assert_same(scripted, eager)


@methods(lambda c: c.cross_attention)
@each_form
@each_axes
@pytest.mark.parametrize("queries", [1, 7, 90], ids=lambda count: f"L={count}")
@pytest.mark.parametrize("masking", ["no mask", "random mask"])
def test_queries_may_be_fewer_or_more_than_keys(
    record: Method, form: str, axes: tuple[int, ...], queries: int, masking: str
) -> None:
    n = 31
    q, k, v = inputs(axes, n, queries=queries)
    mask = mask_for(axes, masking, n)
    output = modules(record.name)[form](q, k, v, mask)
    assert output.shape == (*axes, queries, E)
    assert_same(output, oracle(record, modules(record.name)["eager"], q, k, v, mask))


def other_options() -> list[Any]:
    others: dict[object, object] = {int: 11, float: 11.0, float | None: 11.0}
    return [
        pytest.param(record, field.name, value, id=f"{record.name}-{field.name}={value}")
        for record in METHODS.values()
        for field in dataclasses.fields(record.config)
        for value in [not field.default if field.type is bool else others[field.type]]
    ]


@pytest.mark.parametrize(("record", "option", "value"), other_options())
@pytest.mark.parametrize("masking", ["no mask", "an empty sequence"])
def test_each_option_means_what_the_oracle_says(
    record: Method, option: str, value: Any, masking: str
) -> None:
    module = build(record, **{option: value})
    q, k, v = (0.3 * x for x in inputs((BATCH,), 9))
    mask = mask_for((BATCH,), masking, 9)
    output = module(q, k, v, mask)
    assert_same(output, oracle(record, module, q, k, v, mask))
    if not isinstance(value, int) or isinstance(value, bool):  # sizes only change the weights
        assert not torch.allclose(output, build(record)(q, k, v, mask), rtol=1e-3)


@methods()
@each_form
@each_axes
def test_empty_sequence_gives_zeros(record: Method, form: str, axes: tuple[int, ...]) -> None:
    q, k, v = inputs(axes, 31)
    output = modules(record.name)[form](q, k, v, mask_for(axes, "an empty sequence", 31))
    assert output.isfinite().all()
    assert (output[1] if axes else output).eq(0).all()


@methods()
@each_form
@each_axes
@pytest.mark.parametrize("masking", ["random mask", "an empty sequence"])
@pytest.mark.parametrize("garbage", [1e300, math.inf, -math.inf, math.nan])
def test_masked_keys_and_values_may_hold_anything(
    record: Method, form: str, axes: tuple[int, ...], masking: str, garbage: float
) -> None:
    q, k, v = inputs(axes, 31)
    mask = mask_for(axes, masking, 31)
    assert mask is not None
    padding = mask.logical_not().unsqueeze(-1)
    padding = padding.unsqueeze(1) if len(axes) == 2 else padding
    module = modules(record.name)[form]
    clean = module(q, k, v, mask).detach()
    dirty = module(q, k.masked_fill(padding, garbage), v.masked_fill(padding, garbage), mask)
    assert dirty.detach().numpy().tobytes() == clean.numpy().tobytes()


def removable_padding(record: Method) -> list[str]:
    """The masks under which the masked tokens could as well not be there.

    Methods whose weights belong to positions (Linformer) have this for right padding only: left
    padding and holes shift the remaining tokens to other columns of the weights.
    """
    free = record.capabilities.permutation_equivariant
    return [name for name in MASKS if name != "no mask"] if free else ["right padding"]


@pytest.mark.parametrize(
    ("record", "masking"),
    [
        pytest.param(record, masking, id=f"{record.name}-{masking}")
        for record in METHODS.values()
        for masking in removable_padding(record)
    ],
)
@each_length
def test_masked_equals_unpadded(record: Method, masking: str, n: int) -> None:
    q, k, v = inputs((BATCH, HEADS), n)
    mask = MASKS[masking](n)
    assert mask is not None
    module = modules(record.name)["eager"]
    output = module(q, k, v, mask)
    for b, real in enumerate(mask):
        if real.any():
            assert_same(output[b], module(q[b], k[b][:, real], v[b][:, real]))


@methods()
@settings(deadline=None, derandomize=True, max_examples=60)
@given(data=st.data())
def test_masked_equals_unpadded_for_any_mask(record: Method, data: st.DataObject) -> None:
    pattern = data.draw(st.lists(st.booleans(), min_size=1, max_size=N_MAX).filter(any))
    if not record.capabilities.permutation_equivariant:  # right padding only, as said above
        pattern.sort(reverse=True)
    real = torch.tensor(pattern)
    q, k, v = inputs((), len(pattern), queries=3, seed=data.draw(st.integers(0, 2**32)))
    module = modules(record.name)["eager"]
    assert_same(module(q, k, v, real), module(q, k[real], v[real]))


@methods()
@each_mask
def test_batch_mates_do_not_matter(record: Method, masking: str) -> None:
    q, k, v = inputs((BATCH, HEADS), 31)
    mask = MASKS[masking](31)
    module = modules(record.name)["eager"]
    together = module(q, k, v, mask)
    for b in range(BATCH):
        one = slice(b, b + 1)
        alone = module(q[one], k[one], v[one], None if mask is None else mask[one])
        assert_same(together[one], alone)


@methods(lambda c: c.permutation_equivariant)
@each_axes
def test_order_of_the_tokens_does_not_matter(record: Method, axes: tuple[int, ...]) -> None:
    q, k, v = inputs(axes, 31)
    order = torch.randperm(31, generator=torch.Generator().manual_seed(0))
    module = modules(record.name)["eager"]
    output = module(q, k, v)
    k, v = k[..., order, :], v[..., order, :]
    assert_same(module(q, k, v), output)
    assert_same(module(q[..., order, :], k, v), output[..., order, :])


@methods(lambda c: not c.permutation_equivariant)
def test_order_of_the_tokens_matters(record: Method) -> None:
    q, k, v = inputs((), 31)
    module = modules(record.name)["eager"]
    assert not torch.allclose(module(q, k.flip(0), v.flip(0)), module(q, k, v), rtol=0.1)


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

    assert peak(400) / peak(100) == {"linear": 4, "quadratic": 16}[record.capabilities.cost]


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
@pytest.mark.parametrize("n", [4096, 70_000], ids=lambda n: f"N={n}")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("masking", ["no mask", "right padding"])
def test_sums_may_leave_the_range_of_half_precision(
    record: Method, n: int, dtype: torch.dtype, masking: str
) -> None:
    module = build(record, n).to(dtype)
    q, k, v = inputs((BATCH,), n, queries=3 if record.capabilities.cross_attention else None)
    q, k, v = q.to(dtype), (k + 20).to(dtype), (v + 20).to(dtype)
    assert v.double().sum(dim=-2).min() > torch.finfo(torch.float16).max
    mask = MASKS[masking](n)
    output = module(q, k, v, mask)
    assert output.dtype == dtype
    exact = copy.deepcopy(module).double()(q.double(), k.double(), v.double(), mask).detach()
    # Sums in float32 leave little but the rounding of the output, eps / 2.
    tolerance = torch.finfo(dtype).eps * exact.abs().max().item()
    assert_close(output.double(), exact, rtol=0, atol=tolerance)


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


@methods(lambda c: not c.any_length)
@each_form
def test_too_long_a_sequence_names_both_lengths(record: Method, form: str) -> None:
    error = ValueError if form == "eager" else torch.jit.Error
    with pytest.raises(error, match=rf"(?s)at most N_max = {N_MAX} tokens.*got N = {N_MAX + 1};"):
        modules(record.name)[form](*inputs((BATCH,), N_MAX + 1))


@methods()
@each_form
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=str)
def test_mask_that_is_not_boolean_is_refused(record: Method, form: str, dtype: torch.dtype) -> None:
    error = TypeError if form == "eager" else torch.jit.Error
    with pytest.raises(error, match="mask must be a bool tensor"):
        modules(record.name)[form](*inputs((BATCH,), 7), torch.ones(BATCH, 7, dtype=dtype))


@methods()
@each_form
@pytest.mark.parametrize(
    ("wanted", "got"),
    [([3, 7], [3, 6]), ([3, 7], [2, 7]), ([3, 7], [7]), ([3, 7], [3, 2, 7]), ([7], [1, 7])],
    ids=["too short", "other batch", "no batch axis", "a head axis", "a batch axis too many"],
)
def test_mask_of_another_shape_is_refused(
    record: Method, form: str, wanted: list[int], got: list[int]
) -> None:
    error = ValueError if form == "eager" else torch.jit.Error
    message = f"mask must have shape {re.escape(str(wanted))}.*got .*{re.escape(str(got))}"
    with pytest.raises(error, match=message):
        modules(record.name)[form](*inputs(tuple(wanted[:-1]), 7), torch.ones(got).bool())


WRONG_SHAPES = {
    "one axis": ([4], [4], [4], r"must be \[N, D\], \[B, N, D\] or"),
    "five axes": ([1, 1, 1, 3, 4], [3, 4], [3, 4], r"must be \[N, D\], \[B, N, D\] or"),
    "axes differ": ([2, 3, 4], [3, 4], [3, 4], "same number of axes"),
    "value axes differ": ([3, 4], [3, 4], [2, 3, 4], "same number of axes"),
    "widths differ": ([3, 4], [3, 5], [3, 4], "query and key must have the same width"),
    "batches differ": ([2, 3, 4], [1, 3, 4], [2, 3, 4], "same batch and heads"),
    "value heads differ": ([2, 5, 3, 4], [2, 5, 3, 4], [2, 1, 3, 4], "same batch and heads"),
    "tokens differ": ([3, 4], [3, 4], [2, 4], "key and value must have the same number of tokens"),
}


@methods()
@each_form
@pytest.mark.parametrize("case", WRONG_SHAPES)
def test_shapes_that_do_not_fit_are_refused(record: Method, form: str, case: str) -> None:
    *shapes, message = WRONG_SHAPES[case]
    with pytest.raises(ValueError if form == "eager" else torch.jit.Error, match=message):
        modules(record.name)[form](*(torch.zeros(shape) for shape in shapes))


def options() -> list[tuple[Method, str]]:
    return [(r, f.name) for r in METHODS.values() for f in dataclasses.fields(r.config)]


each_option = pytest.mark.parametrize(
    ("record", "option"), options(), ids=[f"{record.name}-{name}" for record, name in options()]
)


@each_option
def test_misspelt_option_names_the_closest(record: Method, option: str) -> None:
    with pytest.raises(MethodError, match=f"unknown option of method '{record.name}'.*'{option}'"):
        record.configure({option[:-1]: 1})


@methods()
def test_unknown_option_lists_the_known(record: Method) -> None:
    known = ", ".join(f.name for f in dataclasses.fields(record.config)) or "none"
    with pytest.raises(MethodError, match=f"'zzz'; known: {known}$"):
        record.configure({"zzz": 1})


@each_option
@pytest.mark.parametrize("value", ["1", [1], 1j], ids=["text", "list", "complex"])
def test_option_of_the_wrong_type_is_refused(record: Method, option: str, value: object) -> None:
    with pytest.raises(MethodError, match=rf"{record.name}\.{option} must be .*, got "):
        record.configure({option: value})


OUT_OF_RANGE: dict[object, list[float | bool]] = {
    int: [0, -1, 2.0, True],
    float: [0.0, -1e-6, math.nan, math.inf, True],
    float | None: [0.0, -1.0, math.nan, math.inf, True],
    bool: [0, 1],
}


@pytest.mark.parametrize(
    ("record", "option", "value"),
    [
        pytest.param(record, field.name, value, id=f"{record.name}-{field.name}={value}")
        for record in METHODS.values()
        for field in dataclasses.fields(record.config)
        for value in OUT_OF_RANGE[field.type]
    ],
)
def test_option_out_of_range_is_refused(record: Method, option: str, value: object) -> None:
    with pytest.raises(MethodError, match=rf"{record.name}\.{option} must be .*, got {value!r}"):
        record.configure({option: value})


@methods()
def test_real_option_may_be_written_as_an_integer(record: Method) -> None:
    names = fields(record, float) + fields(record, float | None)
    module = build(record, **dict.fromkeys(names, 1))
    q, k, v = inputs((), 7)
    assert torch.equal(torch.jit.script(module)(q, k, v), module(q, k, v))


@pytest.mark.parametrize(("name", "meant"), [("sofmax", "softmax"), ("Linformers", "linformer")])
def test_unknown_method_names_the_closest(name: str, meant: str) -> None:
    with pytest.raises(MethodError, match=f"unknown method: '{name}'; known: .*'{meant}'"):
        method(name)
