"""``--self-test``: every planted fault is rejected, and a gate that is blind is found out."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from checking import OF_STREAMS
from conftest import BuildOnce, CallCli
from folders import CHECK, DYNAMIC, alter, change_weight, edit
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.contract import verdict
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.faults.editing import Graph
from linattn_runtime_checks.faults.graphs import GRAPH_FAULTS, GraphFault, none
from linattn_runtime_checks.faults.mathematics import weight_moved
from linattn_runtime_checks.faults.sessions import SESSION_FAULTS
from linattn_runtime_checks.judging import selftest


@pytest.fixture(scope="module")
def masked_layers(build_once: BuildOnce) -> Path:
    """Every kind of place that a fault needs: softmax, normaliser, E and F, masks, fixed, fp32."""
    request = BuildRequest(
        methods=("softmax", "relu", "linformer"),
        formats=("onnx",),
        lengths=(16,),
        dynamic="1:40",
        batch="1:8",
        mask=True,
        d_model=24,
        heads=2,
        options={"linformer": {"rank": 4, "max_length": 64}},
    )
    return build_once(request)


@pytest.mark.slow
def test_every_fault_is_planted_and_rejected(masked_layers: Path, call_cli: CallCli) -> None:
    done = call_cli(CHECK, masked_layers, "--self-test", "--runtime", "ort-cpu", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["false_alarms"] == []
    planted = {each["fault"] for each in found["planted"]}
    assert planted == set(GRAPH_FAULTS) | set(SESSION_FAULTS) - OF_STREAMS
    seen = {(check, each["fault"]) for each in found["planted"] for check in each["checks"]}
    named = {(c.name, f) for c in CHECKS.values() for f in c.faults if f not in OF_STREAMS}
    assert named - seen == set(), "each check rejects every fault that it names"
    assert all(each["rejected"] for each in found["planted"])
    assert all(each["lengths"] or each["codes"] for each in found["planted"])
    smallest = [each["relative_change"] for each in found["smallest"]]
    assert len(smallest) == 6
    assert all(change is not None and change <= 3e-3 for change in smallest)
    assert f"of {len(planted)} kinds rejected, 0 false alarms" in done.stderr


def test_the_issue_names_these() -> None:
    """At least fifteen kinds, among them those that exporters were seen to let through."""
    wanted = {
        "softmax-axis", "scale-missing", "query-ignored", "normaliser-dropped", "eps-dropped",
        "mask-on-value-only", "mask-off-by-one", "weight-x-1.001", "projections-swapped",
        "count-frozen", "batch-static", "bfloat16-products", "stale-output",
        "nan-at-one-position", "swapped-outputs", "cpu-instead-of-cuda",
    }  # fmt: skip
    assert wanted <= set(GRAPH_FAULTS) | set(SESSION_FAULTS)


@pytest.mark.slow
def test_a_gate_that_is_blind_is_found_out(
    masked_layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that changes nothing cannot be seen: it stands for one that the gate misses."""
    harmless = GraphFault(name="harmless", title="nothing", plant=none)
    monkeypatch.setattr(selftest, "GRAPH_FAULTS", {"harmless": harmless})
    monkeypatch.setattr(selftest, "SESSION_FAULTS", {})
    monkeypatch.setattr(selftest, "_FACTORS", (1e-9,))
    manifest = read(masked_layers)
    manifest.artifacts = manifest.artifacts[:1]
    found = selftest.self_test(masked_layers, manifest, ("ort-cpu",), quiet=True)
    assert found.exit_code is ExitCode.PARITY
    (planted,) = found.planted
    assert not planted.rejected
    assert planted.missed == planted.lengths
    assert {1, 24, 37, 40} <= set(planted.missed)
    (smallest,) = found.smallest
    assert smallest.relative_change is None


@pytest.mark.slow
def test_a_gate_that_rejects_everything_is_found_out(masked_layers: Path, tmp_path: Path) -> None:
    """The control, an unchanged copy, must pass."""
    manifest = read(masked_layers)
    manifest.artifacts = manifest.artifacts[:1]
    manifest.artifacts[0].outputs[0].dtype = "float16"  # so that every output has the wrong type
    found = selftest.self_test(masked_layers, manifest, ("ort-cpu",), quiet=True)
    assert found.exit_code is ExitCode.PARITY
    (alarm,) = found.false_alarms
    assert "dtype_mismatch" in alarm


def test_a_folder_that_fails_as_it_is_is_refused(folder_copy: Path, call_cli: CallCli) -> None:
    alter(folder_copy, DYNAMIC, change_weight(lambda largest: 2 * largest))
    done = call_cli(CHECK, folder_copy, "--self-test", "--runtime", "ort-cpu")
    assert done.returncode == 2
    assert "does not pass as it is (PARITY); faults can be planted only in artifacts that are" in (
        done.stderr
    )


def test_options_that_mean_nothing_here_are_refused(folder_copy: Path, call_cli: CallCli) -> None:
    done = call_cli(CHECK, folder_copy, "--self-test", "--junit", "x.xml")
    assert done.returncode == 2
    assert "--self-test judges the gate, not the folder; leave out --junit" in done.stderr


def test_nothing_to_plant_in(folder_copy: Path, call_cli: CallCli) -> None:
    edit(folder_copy, lambda document: document.update(artifacts=[]))
    done = call_cli(CHECK, folder_copy, "--self-test")
    assert done.returncode == 2
    assert "does not pass as it is (UNVERIFIED)" in done.stderr


@pytest.mark.slow
def test_the_folder_is_not_touched(masked_layers: Path) -> None:
    from conftest import snapshot

    before = snapshot(masked_layers)
    manifest = read(masked_layers)
    manifest.artifacts = manifest.artifacts[:1]
    selftest.self_test(masked_layers, manifest, ("ort-cpu",), quiet=True)
    assert snapshot(masked_layers) == before
    assert verdict.K == 4


@pytest.mark.parametrize(
    ("shape", "place"), [((4, 6), (0, 5)), ((2, 1, 5, 1), (0, 0, 2, 0))], ids=["matrix", "window"]
)
def test_the_weight_that_is_moved_acts_on_every_length(
    shape: tuple[int, ...], place: tuple[int, ...], small_folder: Path
) -> None:
    """The largest of a row; of a convolution the middle, which a single token sees too."""
    weight = np.arange(1.0, 1.0 + np.prod(shape), dtype=np.float32).reshape(shape)
    made = helper.make_graph([], "one weight", [], [], [numpy_helper.from_array(weight, "w")])
    graph = Graph(helper.make_model(made))
    assert weight_moved(2.0)(graph, read(small_folder).artifacts[0])
    moved = graph.weights()["w"] != weight
    assert [tuple(map(int, at)) for at in np.argwhere(moved)] == [place]
