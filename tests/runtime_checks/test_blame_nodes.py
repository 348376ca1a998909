"""A fault planted in an ONNX graph must be found at the node that has it."""

import itertools
from pathlib import Path

import onnx
import pytest

from blame_faults import (
    Plant,
    make,
    mask_inverted,
    mask_not_applied,
    nan_in_a_weight,
    node_of,
    normaliser_dropped,
    normaliser_off_by_a_ten_thousandth,
    one_element,
    output_bias,
    output_weight,
    scale,
    scaled_query,
    slots_swapped,
    softmax_axis,
    wrong_operator,
)
from linattn import METHODS
from linattn_runtime_checks.blame.nodes import first_departing_node
from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.runtimes.base import RunFailed
from siblings import siblings

FAULTS: list[tuple[str, str, bool, Plant]] = [
    ("softmax", "layer", False, scaled_query(1.001)),
    ("linformer", "layer", True, scaled_query(1.001)),
    ("softmax", "layer", True, scaled_query(1.001)),
    ("elu", "layer", False, one_element),
    ("elu", "layer", False, nan_in_a_weight),
    ("softmax", "layer", False, output_bias),
    ("linformer", "layer", True, output_weight),
    ("softmax", "layer", False, softmax_axis(0)),
    ("softmax", "attention", True, softmax_axis(0)),
    ("efficient", "attention", False, softmax_axis(0)),
    ("efficient", "layer", True, softmax_axis(1)),
    ("softmax", "attention", False, scale),
    ("elu", "layer", False, normaliser_dropped),
    ("elu", "attention", False, normaliser_dropped),
    ("taylor", "attention", True, normaliser_dropped),
    ("elu", "attention", False, normaliser_off_by_a_ten_thousandth),
    ("linformer", "attention", False, slots_swapped),
    ("linformer", "layer", False, slots_swapped),
    ("elu", "layer", True, mask_inverted),
    ("softmax", "attention", True, mask_inverted),
    ("relu", "attention", True, mask_not_applied),
    ("relu", "layer", False, wrong_operator),
]
NAMES = [f"{p.__qualname__.split('.')[0]}-{model}-{method}" for method, model, _, p in FAULTS]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blame")


CASES = [pytest.param(*fault, id=name) for fault, name in zip(FAULTS, NAMES, strict=True)]


@pytest.mark.parametrize(
    ("method", "model", "mask", "plant"), siblings(CASES[::2] + CASES[1::2], 11)
)
def test_the_faulty_node_is_named(
    method: str, model: str, mask: bool, plant: Plant, folder: Path, tmp_path: Path
) -> None:
    made = make(folder, method, model, mask=mask)
    faulty = made.load()
    expected = plant(faulty)
    departure = made.blame(faulty)
    assert departure is not None
    assert departure.node in expected, departure.message
    assert departure.output in {o for n in faulty.graph.node for o in n.output}
    optimized = made.optimized(faulty, tmp_path, "all")
    assert made.blame(optimized) is not None


_QUICK = {("softmax", "layer", True), ("taylor", "attention", False), ("linformer", "layer", False)}
RIGHT = [
    pytest.param(*each, marks=[] if each in _QUICK else pytest.mark.slow)
    for each in itertools.product(METHODS, ("attention", "layer"), (False, True))
]


@pytest.mark.parametrize(("method", "model", "mask"), RIGHT)
def test_a_right_artifact_has_no_departing_node(
    method: str, model: str, mask: bool, folder: Path, tmp_path: Path
) -> None:
    made = make(folder, method, model, mask=mask)
    assert made.blame(made.load()) is None
    for level in ("basic", "all"):
        assert made.blame(made.optimized(made.load(), tmp_path, level)) is None


def test_values_that_the_program_does_not_have_are_no_fault_where_its_result_is_right(
    folder: Path, tmp_path: Path
) -> None:
    """The erf form of GELU stands in the graph in five nodes, in the program as one."""
    made = make(folder, "elu", "digits")
    assert made.blame(made.load()) is None
    assert made.blame(made.optimized(made.load(), tmp_path, "all")) is None
    faulty = made.load()
    node_of(faulty, "Erf").op_type = "Tanh"
    departure = made.blame(faulty)
    assert departure is not None
    assert "gelu" in departure.message


def test_a_fault_that_changes_no_result_is_none(folder: Path) -> None:
    made = make(folder, "taylor", "layer", mask=True)  # its queries become unit vectors
    faulty = made.load()
    scaled_query(1.001)(faulty)
    assert made.blame(faulty) is None


def test_a_difference_the_size_of_rounding_is_none(folder: Path) -> None:
    made = make(folder, "softmax")
    faulty = made.load()
    scaled_query(1 + 2e-6)(faulty)
    assert made.blame(faulty) is None
    scaled_query(1.0003)(faulty)
    assert made.blame(faulty) is not None


@pytest.mark.parametrize("level", ["off", "basic", "all"])
def test_half_precision_departs_where_the_fault_is_too(
    level: str, folder: Path, tmp_path: Path
) -> None:
    """ONNX Runtime adds casts of inputs and weights, which the program never computes."""
    made = make(folder, "softmax", mask=True, dtype="fp16")
    assert made.blame(made.optimized(made.load(), tmp_path, level)) is None
    faulty = made.load()
    expected = scaled_query(1.1)(faulty)
    departure = made.blame(made.optimized(faulty, tmp_path, level))
    assert departure is not None
    assert departure.node in expected, departure.message


def test_a_fused_operator_can_be_named(folder: Path, tmp_path: Path) -> None:
    made = make(folder, "softmax", "attention")
    model = made.optimized(made.load(), tmp_path, "all")
    fused = node_of(model, "FusedMatMul")
    (alpha,) = [a for a in fused.attribute if a.name == "alpha"]
    alpha.f *= 1.001
    departure = made.blame(model)
    assert departure is not None
    assert departure.op == "com.microsoft.FusedMatMul"
    assert departure.output == fused.output[0]
    assert departure.after == []


def test_the_message_says_what_is_missing(folder: Path) -> None:
    made = make(folder, "elu")
    faulty = made.load()
    normaliser_dropped(faulty)
    departure = made.blame(faulty)
    assert departure is not None
    assert len(departure.after) == 1
    assert departure.after[0].startswith("Reshape node_")
    assert "the program goes on with div (aten.div.Tensor)" in departure.message
    end = make(folder, "elu", "attention")
    faulty = end.load()
    normaliser_dropped(faulty)
    departure = end.blame(faulty)
    assert departure is not None
    assert "has the values of the program's matmul_1, an earlier step" in departure.message
    assert "the program goes on with div" in departure.message


def test_nan_is_said_to_be_nan(folder: Path) -> None:
    made = make(folder, "elu")
    faulty = made.load()
    nan_in_a_weight(faulty)
    departure = made.blame(faulty)
    assert departure is not None
    assert "gives NaN" in departure.message


def test_what_cannot_be_searched_is_an_error(folder: Path) -> None:
    made = make(folder, "elu")
    model = made.load()
    before = model.SerializeToString()
    with pytest.raises(ValueError, match="no fingerprints"):
        first_departing_node(model, made.inputs, [])
    with pytest.raises(RunFailed):
        first_departing_node(model, {}, made.known)
    assert model.SerializeToString() == before
    broken = onnx.ModelProto()
    broken.CopyFrom(model)
    node_of(broken, "Exp").op_type = "NoSuchOperator"
    with pytest.raises(ExportError, match="cannot load the model"):
        first_departing_node(broken, made.inputs, made.known)
