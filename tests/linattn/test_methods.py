"""What every method promises, asked of every record in METHODS."""

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linattn import METHODS, Method, method
from linattn.contract import SIZES
from method_cases import (
    BATCH,
    HEADS,
    MASKS,
    N_MAX,
    E,
    assert_same,
    bound,
    build,
    each_axes,
    each_form,
    each_length,
    each_mask,
    fields,
    inputs,
    mask_for,
    methods,
    modules,
    oracle,
)


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
    others: dict[object, object] = {int: 11, float: 11.0, float | None: 11.0, int | None: 11}
    return [
        pytest.param(record, field.name, value, id=f"{record.name}-{field.name}={value}")
        for record in METHODS.values()
        for field in dataclasses.fields(record.config)
        if field.name not in SIZES  # not free: the sizes of the inputs
        for value in [
            not field.default
            if field.type is bool
            else get_args(field.type)[-1]
            if get_origin(field.type) is Literal
            else others[field.type]
        ]
    ]


@pytest.mark.parametrize(("record", "option", "value"), other_options())
@pytest.mark.parametrize("masking", ["no mask", "an empty sequence"])
def test_each_option_means_what_the_oracle_says(
    record: Method, option: str, value: Any, masking: str
) -> None:
    module = build(record, **{option: value})
    q, k, v = (0.3 * x for x in inputs((BATCH, HEADS), 9))
    mask = mask_for((BATCH, HEADS), masking, 9)
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
    free = record.capabilities.any_length
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
            queries = torch.ones_like(real) if record.capabilities.cross_attention else real
            one = slice(b, b + 1)
            alone = module(q[one][:, :, queries], k[one][:, :, real], v[one][:, :, real])
            assert_same(output[one][:, :, queries], alone)


@methods()
@settings(deadline=None, derandomize=True, max_examples=60)
@given(data=st.data())
def test_masked_equals_unpadded_for_any_mask(record: Method, data: st.DataObject) -> None:
    pattern = data.draw(st.lists(st.booleans(), min_size=1, max_size=N_MAX).filter(any))
    if len(removable_padding(record)) == 1:  # right padding
        pattern.sort(reverse=True)
    real = torch.tensor(pattern)
    several = 3 if record.capabilities.cross_attention else None
    q, k, v = inputs((), len(pattern), queries=several, seed=data.draw(st.integers(0, 2**32)))
    module = modules(record.name)["eager"]
    queries = torch.ones(len(q), dtype=torch.bool) if several else real
    assert_same(module(q, k, v, real)[queries], module(q[queries], k[real], v[real]))


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
