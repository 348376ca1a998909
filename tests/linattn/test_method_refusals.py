"""What every method refuses: shapes, masks and options that do not fit."""

import dataclasses
import math
import re
from typing import Any, Literal

import pytest
import torch

from linattn import METHODS, Method, MethodError, method
from method_cases import BATCH, N_MAX, build, each_form, fields, inputs, methods, modules


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


OUT_OF_RANGE: dict[object, list[Any]] = {
    int: [0, -1, 2.0, True],
    float: [0.0, -1e-6, math.nan, math.inf, True],
    float | None: [0.0, -1.0, math.nan, math.inf, True],
    int | None: [0, -1, 2.0, True],
    bool: [0, 1],
    Literal["softmax", "relu"]: ["gelu", True],
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
