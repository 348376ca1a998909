"""Graphs that go on from a state: their contract, their forms, and faults that the checks see."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest

from checking import OF_STREAMS, performed
from conftest import BuildOnce, CallCli
from folders import CHECK
from linattn_export.build.pipeline import build
from linattn_export.inspection import describe
from linattn_export.options.request import BuildRequest
from linattn_export.options.variants import ENTRIES
from linattn_runtime_checks.checks.pieces import run_pieces
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.manifest import Artifact, read
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Session, SessionOptions, Tensors
from siblings import siblings

REQUEST = BuildRequest(
    methods=("gated_delta",),
    dynamic="1:400",
    lengths=(),
    batch="1:3",
    mask=True,
    d_model=16,
    heads=2,
    entries=("prefill", "step"),
    formats=("onnx",),
    onnx_forms=("ms",),
    latency=False,
    quiet=True,
)
PLACE = "layer/gated_delta"
QUICK = ("onnx/prefill-ms", "onnx/step-ms")
STD27 = ("onnx/prefill-std27", "onnx/step-std27")
OTHERS = STD27 + tuple(
    f"{kind}/{name}" for kind in ("onnx", "torchscript", "pt2") for name in ("prefill", "step")
)
"""The recurrence spelled out takes torch.export half a minute."""

each_stream = pytest.mark.parametrize("name", siblings([*QUICK, *OTHERS], quick=2))


@pytest.fixture(scope="module")
def quick(build_once: BuildOnce) -> Path:
    return build_once(replace(REQUEST, dynamic="1:140", batch="1:2"))


@pytest.fixture(scope="module")
def whole(build_once: BuildOnce) -> Path:
    every = replace(REQUEST, entries=(), formats=(), onnx_forms=("portable", "ms", "std27"))
    return build_once(every)


@pytest.fixture
def folder(name: str, request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue("quick" if name in QUICK else "whole")
    return found


def built(request: BuildRequest, place: Path) -> Path:
    report = build(replace(request, output=place))
    assert report.exit_code is ExitCode.PASS, report.findings
    return place


def artifact_of(folder: Path, name: str) -> Artifact:
    return next(a for a in read(folder).artifacts if a.id == f"{PLACE}/{name}")


def session_of(folder: Path, artifact: Artifact) -> Session:
    runtime = next(r for r in RUNTIMES.values() if artifact.format in r.formats)
    options = SessionOptions(mode=runtime.modes[-1], threads=1)
    return runtime.open(folder / artifact.path, artifact, options)


@pytest.mark.slow
def test_every_form_and_format_is_there_and_passes(whole: Path) -> None:
    found = {a.id.removeprefix(f"{PLACE}/"): a for a in read(whole).artifacts}
    assert {*QUICK, *OTHERS} <= set(found)
    check_reports(whole)


def test_forms_of_one_node_pass(quick: Path) -> None:
    assert {a.id.removeprefix(f"{PLACE}/") for a in read(quick).artifacts} == set(QUICK)
    check_reports(quick)


def check_reports(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    assert report["verdict"] == "PASS"
    for artifact in report["artifacts"]:
        for runtime in artifact["runtimes"]:
            checks = {check["name"]: check["code"] for check in runtime["checks"]}
            assert (checks.get("pieces") == "pass") == (artifact["entry"] != "forward")
            if artifact["entry"] != "step":
                assert checks["causal"] == checks["padding"] == "pass"
            if artifact["format"] != "torchscript":
                assert checks["cost"] == "pass"


@each_stream
def test_the_manifest_says_what_goes_back_where(name: str, folder: Path) -> None:
    artifact = artifact_of(folder, name)
    state, conv = artifact.states
    assert (state.input, state.output) == ("past_state", "present_state")
    assert (state.shape, state.dtype) == (["batch", 2, 8, 8], "float32")
    assert state.layout == "batch, head, key channel, value channel"
    assert (conv.input, conv.output) == ("past_conv", "present_conv")
    assert conv.shape == ["batch", 48, 3]
    assert {state.initial, conv.initial} == {"zeros"}
    assert artifact.entry == ("step" if "step" in name else "prefill")


LOADS = {"portable": "1.15", "ms": "1.25.1", "std27": "1.32"}
STAMPS = {"portable": (18, 8), "ms": (18, 8), "std27": (27, 13)}


@pytest.mark.parametrize(
    "name",
    siblings([*QUICK, *STD27, *(f"onnx/{entry}" for entry in ENTRIES[1:])], quick=2),
)
def test_a_form_is_stamped_as_it_is(name: str, folder: Path) -> None:
    artifact = artifact_of(folder, name)
    model = onnx.load(folder / artifact.path)
    nodes = [node for node in model.graph.node if node.op_type == "LinearAttention"]
    assert len(nodes) == (0 if artifact.form == "portable" else 1)
    for node in nodes:
        assert node.domain == ("com.microsoft" if artifact.form == "ms" else "")
        given = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        assert given["scale"] == pytest.approx(8**-0.5)
        assert given["update_rule"] == b"gated_delta"
    said = describe(folder / artifact.path)
    assert (said["opsets"]["ai.onnx"], said["ir_version"]) == STAMPS[artifact.form]
    assert said["form"] == artifact.form
    assert said["smallest_onnxruntime"] == LOADS[artifact.form]
    assert said["loads_in"]["ONNX Runtime"] == f"{LOADS[artifact.form]} and later"
    assert set(said["loads_in"]) == {"ONNX Runtime", "Node.js", "browser", "OpenVINO"}


@each_stream
def test_pieces_of_every_runtime_are_the_whole(name: str, folder: Path) -> None:
    """Prefill, steps and any split, of every form, against the float64 definition."""
    artifact = artifact_of(folder, name)
    session = session_of(folder, artifact)
    with open_reference(folder / artifact.reference) as reference:
        (check,) = performed(session, artifact, reference, ["pieces"]).checks
        assert check.code is Code.PASS
        case = reference.index.stream
        assert case is not None
        if artifact.entry == "prefill":
            inputs, wanted = reference.inputs(case), reference.outputs(case)["output"]
            for pieces in ([67], [64, 3], [1] * 3 + [63, 1]):
                got = run_pieces(session, artifact, inputs, pieces)
                assert np.linalg.norm(got - wanted) / np.linalg.norm(wanted) < 1e-5


class Changed:
    """A session whose inputs or outputs are not what they should be."""

    def __init__(self, session: Session, change: Callable[[Session, Tensors], Tensors]) -> None:
        self._session, self._change = session, change

    def run(self, inputs: Tensors) -> Tensors:
        return self._change(self._session, inputs)

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)


def forgets(session: Session, inputs: Tensors) -> Tensors:
    return session.run({**inputs, "past_state": np.zeros_like(inputs["past_state"])})


def forgets_the_convolution(session: Session, inputs: Tensors) -> Tensors:
    return session.run({**inputs, "past_conv": np.zeros_like(inputs["past_conv"])})


def fades(session: Session, inputs: Tensors) -> Tensors:
    outputs = session.run(inputs)
    return {**outputs, "present_state": outputs["present_state"] * np.float32(0.9999)}


def transposes(session: Session, inputs: Tensors) -> Tensors:
    outputs = session.run(inputs)
    state = outputs["present_state"].swapaxes(-1, -2)
    return {**outputs, "present_state": np.ascontiguousarray(state)}


def hands_back(session: Session, inputs: Tensors) -> Tensors:
    return {**session.run(inputs), "present_state": inputs["past_state"]}


@pytest.mark.parametrize("name", ["onnx/step-ms", "onnx/prefill-ms"])
@pytest.mark.parametrize("fault", [forgets, forgets_the_convolution, fades, transposes, hands_back])
def test_a_state_that_is_not_handed_on_is_seen(
    fault: Callable[[Session, Tensors], Tensors], name: str, folder: Path
) -> None:
    artifact = artifact_of(folder, name)
    session = cast(Session, Changed(session_of(folder, artifact), fault))
    with open_reference(folder / artifact.reference) as reference:
        (check,) = performed(session, artifact, reference, ["pieces"]).checks
    assert check.code is Code.PIECES_DIFFER
    assert "67 tokens" in check.message


@pytest.mark.parametrize("name", ["onnx/step-ms"])
def test_a_contract_that_names_the_wrong_tensor_is_seen(name: str, folder: Path) -> None:
    artifact = artifact_of(folder, name)
    links = [link.model_copy() for link in artifact.states]
    links[0].initial = "zeros"
    links[0].output, links[1].output = links[1].output, links[0].output
    wrong = artifact.model_copy(update={"states": links})
    session = session_of(folder, artifact)
    with open_reference(folder / artifact.reference) as reference:
        (check,) = performed(session, wrong, reference, ["pieces"]).checks
    assert check.code is Code.RUN_FAILED
    assert "past_state" in check.message


@pytest.mark.slow
def test_the_self_test_plants_faults_of_states(quick: Path, call_cli: CallCli) -> None:
    done = call_cli(CHECK, quick, "--self-test", "--runtime", "ort-cpu", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["false_alarms"] == []
    assert {each["fault"] for each in found["planted"]} >= OF_STREAMS
    assert all(each["rejected"] for each in found["planted"])


def test_two_widths_side_by_side_are_not_taken_for_tokens(tmp_path: Path) -> None:
    """Mamba-2's gate beside its skip was as wide as a fixed length, and looked quadratic."""
    request = replace(
        REQUEST,
        methods=("mamba2",),
        entries=("forward",),
        onnx_forms=("ms",),
        lengths=(96,),
        dynamic="",
        batch="1:2",
        mask=False,
        d_model=24,
    )
    built(request, tmp_path / "out")
