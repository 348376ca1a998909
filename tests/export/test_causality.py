"""No token sees the future: said of causal artifacts by a check that trusts no reference."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from changed_sessions import Change, codes, nothing
from conftest import BuildOnce
from linattn import LAYERS, METHODS, record_of
from linattn_export.formats.base import Job
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.contract.manifest import TensorSpec, read
from linattn_runtime_checks.contract.token_axes import another_from
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Tensors

pytestmark = pytest.mark.slow

Run = Callable[[Tensors], Tensors]
CAUSAL = [name for name, record in METHODS.items() if record.capabilities.causal]


@pytest.fixture(scope="module")
def causal_folder(build_once: BuildOnce) -> Path:
    request = BuildRequest(
        methods=("causal_elu", "retention"),
        formats=("onnx", "torchscript", "pt2"),
        lengths=(80,),
        dynamic="1:400",
        batch="1:4",
        mask=True,
        d_model=24,
        heads=2,
        entries=("forward",),
    )
    return build_once(request)


def test_causal_methods_say_so(causal_folder: Path) -> None:
    assert {"causal_elu", "causal_relu", "causal_taylor", "retention"} <= set(CAUSAL)
    assert all(artifact.causal for artifact in read(causal_folder).artifacts)
    assert {runtime for runtime in RUNTIMES if runtime != "ort-cuda"} >= {"ort-cpu", "pt2"}


@pytest.mark.parametrize("variant", ["dynamic", "n80"])
@pytest.mark.parametrize("kind", ["onnx", "torchscript"])
def test_right_artifacts_pass(kind: str, variant: str, causal_folder: Path) -> None:
    found = codes(causal_folder, f"layer/retention/{kind}/{variant}", nothing)
    expected = {"finite", "deterministic", "alone", "padding", "nan_padding", "causal"}
    assert found == dict.fromkeys(expected, Code.PASS)


def test_other_tokens_are_tokens_that_the_model_takes() -> None:
    spec = TensorSpec(
        name="tokens", dtype="int64", shape=["batch", "sequence"], axes=["batch", "sequence"]
    )
    tokens = np.array([[3, 200, 7, 200, 3]])
    another = another_from(tokens, spec, 2)
    assert another.tolist() == [[3, 200, 196, 3, 200]]
    assert another_from(tokens.astype(np.float32), spec, 2)[0, 2] == 1 - 7


def hair_of_the_mean(inputs: Tensors, run: Run) -> Tensors:
    """One millionth of the mean over all tokens."""
    return {
        name: x + np.float32(1e-6) * x.mean(axis=1, keepdims=True)
        for name, x in run(inputs).items()
    }


def off_by_one(inputs: Tensors, run: Run) -> Tensors:
    """The output of the next token."""
    return {name: np.roll(x, -1, axis=1) for name, x in run(inputs).items()}


def last_sees_all(inputs: Tensors, run: Run) -> Tensors:
    """The first half of the tokens gets a hair of the last one."""
    outputs = {name: x.copy() for name, x in run(inputs).items()}
    for x in outputs.values():
        x[:, : x.shape[1] // 2] += np.float32(1e-6) * x[:, -1:]
    return outputs


@pytest.mark.parametrize("change", [hair_of_the_mean, off_by_one, last_sees_all])
@pytest.mark.parametrize("variant", ["dynamic", "n80"])
def test_a_glimpse_of_the_future_is_seen(change: Change, variant: str, causal_folder: Path) -> None:
    found = codes(causal_folder, f"layer/causal_elu/onnx/{variant}", change)
    assert found["causal"] is Code.FUTURE_LEAKS


def test_the_cost_of_dynamic_artifacts_is_certified_linear(causal_folder: Path) -> None:
    """Their sizes go up in chunks, and their states go through a Scan."""
    report = json.loads((causal_folder / "report.json").read_text())
    kinds = {
        (artifact["id"].split("/")[1], runtime["runtime"]): runtime["cost"]["kind"]
        for artifact in report["artifacts"]
        if artifact["variant"] == "dynamic"
        for runtime in artifact["runtimes"]
        if runtime["cost"] is not None
    }
    expected = [(m, r) for m in ("causal_elu", "retention") for r in ("ort-cpu", "pt2")]
    assert kinds == dict.fromkeys(expected, "linear")


def test_a_capture_does_not_depend_on_those_before_it() -> None:
    """torch compares a scan with those that it has seen, and would exclude their lengths."""
    request = BuildRequest(
        methods=("causal_elu",),
        lengths=(130,),
        dynamic="1:400",
        d_model=16,
        heads=2,
        entries=("forward",),
    )
    (subject,) = make_subjects(request)
    dynamic, fixed = subject.variants
    assert fixed.sequence.fixed
    for variant in (fixed, dynamic):
        assert Job(subject=subject, variant=variant, opset=18).program is not None


@pytest.mark.parametrize(
    "method",
    [*CAUSAL, *(pytest.param(n) for n, r in LAYERS.items() if r.limits)],
)
def test_one_head_is_limited_as_the_method_says(method: str) -> None:
    def captured(dynamic: str, batch: str) -> Job:
        request = BuildRequest(
            methods=(method,),
            lengths=(),
            dynamic=dynamic,
            d_model=16,
            heads=1,
            batch=batch,
            entries=("forward",),
        )
        (subject,) = make_subjects(request)
        return Job(subject=subject, variant=subject.variants[0], opset=18)

    assert "one head, sizes from 1" in record_of(method).limits
    said = r"(sequence|batch).*!= 1.*; known limit .*declare 2 and more"
    with pytest.raises(ExportError, match=said):
        captured("1:64", "1:4").program  # noqa: B018
    assert captured("2:64", "2:4").program is not None
