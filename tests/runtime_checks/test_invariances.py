"""The checks that trust no reference, each made to fail by a session that breaks it."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from changed_sessions import Change, codes, nothing
from conftest import BuildOnce
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.results.report import CaseResult
from linattn_runtime_checks.runtimes.base import Tensors


@pytest.fixture(scope="module")
def masked_folder(build_once: BuildOnce) -> Path:
    request = BuildRequest(
        methods=("softmax", "elu", "linformer"),
        models=("attention",),
        formats=("onnx", "torchscript"),
        lengths=(16,),
        dynamic="1:40",
        batch="1:4",
        mask=True,
        d_model=24,
        heads=2,
        options={"linformer": {"rank": 4, "max_length": 64}},
    )
    return build_once(request)


_RUNS = itertools.count()


@pytest.mark.parametrize("kind", ["onnx", "torchscript"])
@pytest.mark.parametrize("variant", ["dynamic", "n16"])
@pytest.mark.parametrize("method", ["softmax", "elu", "linformer"])
def test_right_artifacts_pass_every_check_that_applies(
    method: str, variant: str, kind: str, masked_folder: Path
) -> None:
    found = codes(masked_folder, f"attention/{method}/{kind}/{variant}", nothing)
    expected = {"finite", "deterministic", "alone", "padding", "nan_padding", "equivariant"}
    if method == "linformer":
        expected -= {"equivariant"}  # E and F tell tokens apart by their places
    assert found == dict.fromkeys(expected, Code.PASS)


def noisy(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    """A random operator: one bit of one element."""
    outputs = {name: tensor.copy() for name, tensor in run(inputs).items()}
    for tensor in outputs.values():
        tensor.reshape(-1).view(np.uint32)[0] ^= np.uint32(next(_RUNS) % 8)
    return outputs


def batch_mean(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    """Something of the other sequences of the batch."""
    return {name: x + 1e-4 * x.mean(axis=0, keepdims=True) for name, x in run(inputs).items()}


def first_sequence_only(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    return {name: np.repeat(x[:1], len(x), axis=0) for name, x in run(inputs).items()}


def unmasked(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    return run(inputs | {"attention_mask": np.ones_like(inputs["attention_mask"])})


def unmasked_alone(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    mask = inputs["attention_mask"]
    return run(inputs | {"attention_mask": mask | (len(mask) == 1)})


def special_for_one_token(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    one = inputs["value"].shape[0] == inputs["value"].shape[2] == 1
    return {name: x + np.float32(one) for name, x in run(inputs).items()}


def holes_filled(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    mask = inputs["attention_mask"]
    left = np.logical_or.accumulate(mask[:, ::-1], axis=1)[:, ::-1]
    return run(inputs | {"attention_mask": np.logical_or.accumulate(mask, axis=1) & left})


def leaks_by_a_hair(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    """One millionth of the mean over all values, padding too."""
    mean = np.nan_to_num(inputs["value"]).mean()
    return {name: x + np.float32(1e-6) * mean for name, x in run(inputs).items()}


def places(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    """A position embedding."""
    return {
        name: x + np.linspace(0, 1e-3, x.shape[2], dtype=x.dtype)[:, None]
        for name, x in run(inputs).items()
    }


def last_token_missing(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    mask = inputs["attention_mask"].copy()
    mask[:, -1:] = mask[:, -1:] & (mask.shape[1] == 1)
    return run(inputs | {"attention_mask": mask})


@pytest.mark.parametrize(
    ("change", "check", "code"),
    [
        (noisy, "deterministic", Code.NOT_DETERMINISTIC),
        (batch_mean, "alone", Code.BATCH_DEPENDENT),
        (first_sequence_only, "alone", Code.BATCH_DEPENDENT),
        (unmasked_alone, "alone", Code.BATCH_DEPENDENT),
        (unmasked, "padding", Code.PADDING_LEAKS),
        (holes_filled, "padding", Code.PADDING_LEAKS),
        (leaks_by_a_hair, "padding", Code.PADDING_LEAKS),
        (places, "equivariant", Code.NOT_EQUIVARIANT),
        (last_token_missing, "equivariant", Code.NOT_EQUIVARIANT),
    ],
)
@pytest.mark.parametrize("variant", ["dynamic", "n16"])
def test_what_breaks_an_invariance_is_seen(
    change: Change, check: str, code: Code, variant: str, masked_folder: Path
) -> None:
    found = codes(masked_folder, f"attention/elu/onnx/{variant}", change)
    assert found[check] is code


def test_what_is_special_for_one_token_alone_is_seen(masked_folder: Path) -> None:
    found = codes(masked_folder, "attention/elu/onnx/dynamic", special_for_one_token)
    assert found["alone"] is Code.BATCH_DEPENDENT


def test_infinity_from_finite_inputs_is_seen_whatever_the_reference_says(
    masked_folder: Path,
) -> None:
    case = CaseResult(
        mode="optimizer-on",
        case="scale=100-b3-n37",
        family="scale=100",
        batch=3,
        sequence=37,
        code=Code.PASS,
        nonfinite=True,
    )
    found = codes(masked_folder, "attention/elu/onnx/dynamic", nothing, (case,))
    assert found["finite"] is Code.NONFINITE_OUTPUT


def test_a_missing_output_is_an_error_and_no_crash(masked_folder: Path) -> None:
    def renamed(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
        (tensor,) = run(inputs).values()
        return {"other": tensor}

    found = codes(masked_folder, "attention/elu/onnx/dynamic", renamed)
    assert found.pop("finite") is Code.PASS, "of the cases, none of which were run here"
    assert set(found.values()) == {Code.RUN_FAILED}
