"""Blame where there are several outputs: each is judged by what rounding costs on it."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import own_nets
from linattn_export.build.record import entry_of
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job, Written
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_runtime_checks.blame import locate as located
from linattn_runtime_checks.blame.ladder import climb
from linattn_runtime_checks.blame.optimizers import OptimizerBlame
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import (
    Case,
    Reference,
    ReferenceIndex,
    Rounding,
    StoredError,
    open_reference,
    write_reference,
)
from linattn_runtime_checks.contract.manifest import Artifact, StoredFile, TensorSpec
from linattn_runtime_checks.results.report import CaseResult, RuntimeResult
from own_specs import SPEC

EXACT, ROUGH = StoredError(row=1e-7, whole=1e-7), StoredError(row=1e-2, whole=1e-2)


def case_of(first: StoredError, second: StoredError) -> Case:
    """A case with a first and a second output."""
    known = Rounding(eager_error=second, sensitivity=ROUGH if second is ROUGH else EXACT)
    return Case(
        name="c", family="normal", batch=1, sequence=2, stored="c", eager_error=first,
        sensitivity=ROUGH if first is ROUGH else EXACT, states={"second": known},
    )  # fmt: skip


def job_of(dtype: torch.dtype) -> Job:
    subject = make_subject(own_nets.Plain(), read_spec(SPEC), BuildRequest(), "x", "x")
    object.__setattr__(subject, "dtype", dtype)
    return Job.of(subject, subject.variants[0], 18)


def artifact_of(dtype: torch.dtype = torch.float32) -> Artifact:
    file = StoredFile(path="x/model.onnx", sha256="0" * 64, bytes=1)
    return entry_of(job_of(dtype), FORMATS["onnx"], [file], Written(), "x/onnx/dynamic", "r")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_manifest_names_the_dtype_that_it_is(dtype: torch.dtype) -> None:
    assert artifact_of(dtype).dtype == str(dtype).removeprefix("torch.")


def two_outputs() -> Artifact:
    artifact = artifact_of()
    artifact.outputs = [
        TensorSpec(name=name, dtype=dtype, shape=["batch", "sequence"], axes=["batch", "sequence"])
        for name, dtype in (("first", "float32"), ("second", "float16"))
    ]
    return artifact


def outcomes(first: Code, second: Code, mode: str) -> list[CaseResult]:
    return [
        CaseResult(mode=mode, case="c", family="normal", batch=1, sequence=2, code=code)
        for code in (first, second)
    ]


@pytest.mark.parametrize(
    ("first", "second", "wrong"), [(EXACT, ROUGH, False), (ROUGH, EXACT, True)], ids=["no", "yes"]
)
def test_the_optimiser_is_suspected_by_the_yardstick_of_each_output(
    first: StoredError,
    second: StoredError,
    wrong: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second output is off by a thousandth, which is rounding of it, or is far more."""
    case, path = case_of(first, second), tmp_path / "pack.safetensors"
    x = np.ones((1, 2), dtype=np.float32)
    write_reference(
        path,
        ReferenceIndex(dtype="float32", cases=[case]),
        {"c/input/x": x, "c/output/first": np.ones((1, 2)), "c/output/second": np.ones((1, 2))},
    )
    seen: list[bool] = []

    def output_fails(path: Path, inputs: Any, judge: Any) -> Any:
        seen.append(judge({"first": x, "second": (x * 1.001).astype(np.float16)}))
        return None

    blame = OptimizerBlame(level="all", optimizers=["One"], message="it was One")
    monkeypatch.setattr(located, "output_fails", output_fails)
    monkeypatch.setattr(located, "blame_optimizers", lambda fails: blame)
    off = outcomes(Code.PASS, Code.PASS, "optimizer-off")
    on = outcomes(Code.PASS, Code.PARITY_EXCEEDED, "optimizer-on")
    result = RuntimeResult(runtime="ort-cpu", cases=[*off, *on])
    with open_reference(path) as pack:
        located.locate(result, two_outputs(), cast("list[Reference]", [pack]), tmp_path / "none")
    assert seen == [wrong]
    assert result.optimizers is not None


def test_the_optimiser_is_not_suspected_where_any_output_is_wrong_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, path = case_of(EXACT, EXACT), tmp_path / "pack.safetensors"
    write_reference(path, ReferenceIndex(dtype="float32", cases=[case]), {"c/input/x": np.ones(1)})
    monkeypatch.setattr(located, "blame_optimizers", lambda fails: pytest.fail("was suspected"))
    cases = [c for mode in ("optimizer-off", "optimizer-on")
             for c in outcomes(Code.PASS, Code.PARITY_EXCEEDED, mode)]  # fmt: skip
    with open_reference(path) as pack:
        result = RuntimeResult(runtime="ort-cpu", cases=cases)
        located.locate(result, two_outputs(), cast("list[Reference]", [pack]), tmp_path / "none")
    assert result.optimizers is None


@pytest.mark.parametrize(
    ("second", "off", "first"),
    [
        (EXACT, Code.PARITY_EXCEEDED, "onnx"),
        (EXACT, Code.PASS, "optimizer"),
        (StoredError(row=1e-3, whole=1e-3), Code.PARITY_EXCEEDED, "eager"),
    ],
)
def test_the_ladder_sees_every_output(second: StoredError, off: Code, first: str) -> None:
    artifact = two_outputs()
    cases = outcomes(Code.PASS, off, "optimizer-off")
    cases += outcomes(Code.PASS, Code.PARITY_EXCEEDED, "optimizer-on")
    failed = RuntimeResult(runtime="ort-cpu", cases=cases)
    found = climb(artifact, failed, case_of(EXACT, second), {artifact.id: (artifact, [failed])})
    assert found.first == first


def test_what_rounding_costs_is_told_of_each_output() -> None:
    case = case_of(EXACT, ROUGH)
    assert case.rounding() == pytest.approx(3e-7)
    assert case.rounding("second") == pytest.approx(3e-2)
