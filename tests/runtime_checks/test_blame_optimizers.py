"""The search for the optimiser at fault, on faults of which the optimiser is known."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from blame_faults import Made, make, one_element
from linattn_runtime_checks.blame.optimizers import (
    OPTIMIZERS,
    Fails,
    Setting,
    available_levels,
    blame_optimizers,
    open_optimized,
    output_fails,
)
from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.runtimes.base import Tensors


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("optimizers"), "softmax", "attention")


def graph_has(path: Path, folder: Path, wanted: Callable[[list[str]], bool]) -> Fails:
    """The fault "the optimised graph has such operators"."""

    def fails(setting: Setting) -> bool:
        open_optimized(path, setting, folder / "optimized.onnx")
        nodes = onnx.load(folder / "optimized.onnx").graph.node
        return wanted([node.op_type for node in nodes])

    return fails


def test_one_optimizer_is_found(made: Made, tmp_path: Path) -> None:
    """The scale of the queries goes into the product when MatMulScaleFusion runs."""
    blame = blame_optimizers(graph_has(made.path, tmp_path, lambda ops: "Mul" not in ops))
    assert blame is not None
    assert (blame.level, blame.optimizers) == ("extended", ["MatMulScaleFusion"])
    assert blame.message == "it fails from level extended on, and not without MatMulScaleFusion"


def test_two_that_each_suffice_are_both_found(made: Made, tmp_path: Path) -> None:
    """Either makes a FusedMatMul, for the scale or for the transposed keys."""
    blame = blame_optimizers(graph_has(made.path, tmp_path, lambda ops: "FusedMatMul" in ops))
    assert blame is not None
    assert blame.level == "extended"
    assert set(blame.optimizers) == {"MatMulScaleFusion", "MatmulTransposeFusion"}


def test_a_rewrite_rule_is_found_at_the_first_level(tmp_path: Path) -> None:
    masked = make(tmp_path, "softmax", "attention", mask=True)
    count = sum(node.op_type == "Not" for node in masked.load().graph.node)
    fails = graph_has(masked.path, tmp_path, lambda ops: ops.count("Not") < count)
    blame = blame_optimizers(fails)
    assert blame is not None
    assert (blame.level, blame.optimizers) == ("basic", ["NotWhereFusion"])


def test_no_fault_no_blame(made: Made) -> None:
    assert blame_optimizers(output_fails(made.path, made.inputs, lambda outputs: False)) is None


def test_a_fault_of_the_graph_itself_is_no_optimizers(made: Made, tmp_path: Path) -> None:
    faulty = make(tmp_path, "elu")
    model = faulty.load()
    right = open_optimized(faulty.path, Setting(level="off")).run(None, faulty.inputs)[0]
    one_element(model)
    onnx.save(model, tmp_path / "faulty.onnx")

    def wrong(outputs: Tensors) -> bool:
        return not np.allclose(outputs["output"], right, rtol=1e-4, atol=0)

    blame = blame_optimizers(output_fails(tmp_path / "faulty.onnx", faulty.inputs, wrong))
    assert blame is not None
    assert (blame.level, blame.optimizers) == ("off", [])


def test_an_input_that_does_not_run_is_a_fault(made: Made) -> None:
    blame = blame_optimizers(output_fails(made.path, {}, lambda outputs: False))
    assert blame is not None
    assert blame.level == "off"


def test_a_level_without_a_named_culprit_is_said_to_have_none() -> None:
    blame = blame_optimizers(lambda setting: setting.level in ("layout", "all"))
    assert blame is not None
    assert blame.level in ("layout", "all")
    assert blame.optimizers == []
    assert "kernels chosen at that level" in blame.message


@pytest.mark.parametrize("guilty", [1, 2, 3, 5])
def test_the_search_is_short_and_finds_a_smallest_set(guilty: int) -> None:
    wanted = set(OPTIMIZERS[7 :: len(OPTIMIZERS) // guilty][:guilty])
    calls: list[Setting] = []

    def fails(setting: Setting) -> bool:
        calls.append(setting)
        return setting.level != "off" and not wanted <= set(setting.disabled)

    blame = blame_optimizers(fails)
    assert blame is not None
    assert set(blame.optimizers) == wanted
    assert len(calls) <= 4 + 4 * guilty * np.log2(len(OPTIMIZERS))


def test_without_all_that_have_a_name_the_graph_stays_as_it_is(made: Made, tmp_path: Path) -> None:
    """The list of names is not short of one that does something to these models."""
    written = tmp_path / "optimized.onnx"
    for level in available_levels():
        open_optimized(made.path, Setting(level=level, disabled=OPTIMIZERS), written)
        found = [node.op_type for node in onnx.load(written).graph.node]
        assert found == [node.op_type for node in made.load().graph.node]
    assert len(set(OPTIMIZERS)) == len(OPTIMIZERS)


def test_a_broken_model_is_an_export_error(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ExportError, match=r"cannot load broken\.onnx"):
        open_optimized(tmp_path / "broken.onnx", Setting(level="all"))
