"""Faults that people met with other exporters, by their kind; the gate must see each.

Most kinds have their tests where the part that answers them is tested. These have no such place.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from conftest import CallCli
from folders import CHECK, DYNAMIC, QUICK, alter, codes, report_of, restamp
from linattn import METHODS
from linattn_export.formats.base import Job
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.cost.memory import peaks
from linattn_runtime_checks.faults.editing import Graph


def judged(folder: Path, call_cli: CallCli) -> set[str]:
    done = call_cli(CHECK, folder, *QUICK, "--json")
    assert done.returncode == 1, done.stderr
    return codes(report_of(done), DYNAMIC)


def random_features(graph: Graph) -> None:
    """Noise in the graph, as torch.randn in a forward leaves it."""

    def make(graph: Graph, inner: str) -> str:
        # One rounding unit, in one element of twenty.
        noise = graph.append("RandomNormalLike", [inner], scale=3e-8)
        one = graph.append("Add", [noise, graph.constant(np.array(1, np.float32))])
        return graph.append("Mul", [inner, one])

    graph.after_output(make)


def active_dropout(graph: Graph) -> None:
    """A module that was exported in training mode."""

    def make(graph: Graph, inner: str) -> str:
        ratio = graph.constant(np.array(0.1, np.float32))
        training = graph.constant(np.array(True))
        return graph.append("Dropout", [inner, ratio, training])

    graph.after_output(make)


def test_dropout_that_stayed_active_is_seen(folder_copy: Path, call_cli: CallCli) -> None:
    """ONNX Runtime's optimiser drops it, whatever it says: it shows where the optimiser is off."""
    alter(folder_copy, DYNAMIC, lambda model: active_dropout(Graph(model)))
    assert "parity_exceeded" in judged(folder_copy, call_cli)


def test_noise_below_the_rounding_is_seen_by_its_bytes_alone(
    folder_copy: Path, call_cli: CallCli
) -> None:
    alter(folder_copy, DYNAMIC, lambda model: random_features(Graph(model)))
    assert judged(folder_copy, call_cli) == {"not_deterministic"}


def test_a_quantised_file_does_not_inherit_the_verdict(
    folder_copy: Path, call_cli: CallCli
) -> None:
    from onnxruntime.quantization import quantize_dynamic

    path = folder_copy / DYNAMIC / "model.onnx"
    quantize_dynamic(path, path, extra_options={"DefaultTensorType": TensorProto.FLOAT})
    restamp(folder_copy, DYNAMIC)
    alter(folder_copy, DYNAMIC, lambda model: None)
    assert "parity_exceeded" in judged(folder_copy, call_cli)
    kept = {item.key for item in onnx.load(path).metadata_props}
    assert {"linattn.method", "linattn.verified_sequence"} <= kept, "metadata survives the tool"


def test_a_file_that_onnx_runtime_optimised_keeps_its_metadata(
    small_folder: Path, tmp_path: Path
) -> None:
    settings = ort.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    settings.log_severity_level = 4
    path = str(small_folder / DYNAMIC / "model.onnx")
    ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    kept = {item.key for item in onnx.load(tmp_path / "optimised.onnx").metadata_props}
    assert {"linattn.method", "linattn.config", "linattn.verified_sequence"} <= kept


@pytest.mark.slow
@pytest.mark.parametrize("model", ["attention", "layer"])
def test_no_device_is_written_into_what_is_captured(model: str) -> None:
    """A literal device freezes a file to the machine that exported it."""
    request = BuildRequest(
        methods=tuple(METHODS), models=(model,), lengths=(), dynamic="1:40", mask=True,
        d_model=16, heads=2,
        options={"linformer": {"rank": 4}},
    )  # fmt: skip
    subjects = make_subjects(request)
    assert {subject.method for subject in subjects} == set(METHODS)
    for subject in subjects:
        job = Job(subject=subject, variant=subject.variants[0], opset=18)
        for node in job.program.graph.nodes:
            assert node.kwargs.get("device") is None, f"{subject.name}: {node.format_node()}"


def test_no_einsum_is_left_to_the_runtime(small_folder: Path) -> None:
    for artifact in read(small_folder).artifacts:
        for op in artifact.op_histogram or {}:
            assert "einsum" not in op.lower(), artifact.id


def test_eight_threads_on_one_session_get_the_same_bytes(small_folder: Path) -> None:
    path = str(small_folder / DYNAMIC / "model.onnx")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    chance = np.random.default_rng(0)
    inputs = [chance.standard_normal((2, n, 32), dtype=np.float32) for n in range(1, 33)]
    expected = [session.run(None, {"hidden_states": x})[0].tobytes() for x in inputs]
    start = threading.Barrier(8)

    def run(first: int) -> list[bool]:
        start.wait()
        order = range(first, first + len(inputs))
        places = [place % len(inputs) for place in order]
        outputs = [(p, session.run(None, {"hidden_states": inputs[p]})[0]) for p in places]
        return [output.tobytes() == expected[place] for place, output in outputs]

    with ThreadPoolExecutor(8) as pool:
        for same in pool.map(run, range(8)):
            assert all(same)


@pytest.mark.alone
@pytest.mark.slow
def test_memory_stays_bounded_while_lengths_change(small_folder: Path) -> None:
    """300 lengths in random order: an arena that kept a pattern for each would grow without end."""
    path = str(small_folder / DYNAMIC / "model.onnx")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    chance = random.Random(0)

    def soak(runs: int) -> None:
        for _ in range(runs):
            size = (4, chance.randint(1, 4096), 32)
            session.run(None, {"hidden_states": np.zeros(size, np.float32)})

    soak(100)
    found = peaks(soak, [200])
    if found is None:
        pytest.skip("no resident memory can be read here")
    assert found[200] < 64 * 2**20


def test_a_loop_in_the_file_is_not_certified(folder_copy: Path, call_cli: CallCli) -> None:
    """A body that the check cannot see into is 'unknown', never 'linear'."""

    def wrap(model: onnx.ModelProto) -> None:
        graph = Graph(model)

        def make(graph: Graph, inner: str) -> str:
            body = helper.make_graph(
                [
                    helper.make_node("Identity", ["c"], ["c_out"]),
                    helper.make_node("Identity", ["x"], ["x_out"]),
                ],
                "body",
                [
                    helper.make_tensor_value_info("i", TensorProto.INT64, []),
                    helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                    helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
                ],
                [
                    helper.make_tensor_value_info("c_out", TensorProto.BOOL, []),
                    helper.make_tensor_value_info("x_out", TensorProto.FLOAT, None),
                ],
            )
            once = graph.constant(np.array(1))
            on = graph.constant(np.array(True))
            return graph.append("Loop", [once, on, inner], body=body)

        graph.after_output(make)

    alter(folder_copy, DYNAMIC, wrap)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    (runtime,) = report_of(done)["artifacts"][0]["runtimes"]
    assert runtime["cost"]["kind"] == "unknown"
    assert done.returncode == 0, "the numbers are right"
    strict = call_cli(CHECK, folder_copy, *QUICK, "--fail-on", "cost_unknown")
    assert strict.returncode == 5, strict.stderr
