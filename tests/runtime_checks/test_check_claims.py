"""``linattn-check`` on files that do not keep what the manifest promises."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from conftest import CallCli
from folders import (
    CHECK,
    DYNAMIC,
    FIXED,
    QUICK,
    SCRIPT,
    Document,
    alter,
    codes,
    edit,
    entry,
    only,
    report_of,
)

# Claims that the files do not keep


def declare(axis: str, low: int, high: int) -> Callable[[Document], None]:
    def change(artifact: Document) -> None:
        (found,) = [item for item in artifact["axes"] if item["name"] == axis]
        found["declared"] = [low, high]

    return change


def promise(kind: str, axis: int, size: int | str) -> Callable[[Document], None]:
    def change(artifact: Document) -> None:
        artifact[kind][0]["shape"][axis] = size

    return change


@pytest.mark.parametrize(
    ("name", "change", "code", "says"),
    [
        pytest.param(
            DYNAMIC,
            declare("sequence", 1, 128),
            "axis_unverified_range",
            "axis sequence declares 1:128 but was verified on 1:64 only",
            id="longer-than-verified",
        ),
        pytest.param(
            DYNAMIC,
            declare("batch", 1, 8),
            "axis_unverified_range",
            "axis batch declares 1:8 but was verified on 1:4 only",
            id="larger-batch-than-verified",
        ),
        pytest.param(
            DYNAMIC,
            promise("inputs", 1, "tokens"),
            "axis_renamed",
            "input hidden_states: axis 1 (tokens) was renamed to 'sequence'",
            id="axis-renamed",
        ),
        pytest.param(
            FIXED,
            promise("outputs", 1, "sequence"),
            "axis_became_static",
            "output output: axis 1 (sequence) became static: 16",
            id="axis-static",
        ),
        pytest.param(
            DYNAMIC,
            promise("inputs", 1, 16),
            "axis_not_fixed",
            "input hidden_states: axis 1 is 'sequence', promised 16",
            id="axis-not-fixed",
        ),
        pytest.param(
            DYNAMIC,
            lambda artifact: artifact["inputs"][0].update(dtype="float16"),
            "dtype_mismatch",
            "input hidden_states is float32, promised float16",
            id="dtype",
        ),
        pytest.param(
            DYNAMIC,
            lambda artifact: artifact["outputs"][0]["shape"].append(1),
            "shape_mismatch",
            "output output has shape ['batch', 'sequence', 32], promised",
            id="rank",
        ),
        pytest.param(
            DYNAMIC,
            lambda artifact: artifact["inputs"][0].update(name="x"),
            "inputs_differ",
            "inputs are ['hidden_states'], promised ['x']",
            id="input-renamed",
        ),
        pytest.param(
            DYNAMIC,
            declare("sequence", 16, 16),
            "length_not_refused",
            "refusal: fixed to sequence length 16 but ran one of 17",
            id="dynamic-listed-as-fixed",
        ),
    ],
)
def test_a_claim_that_the_file_does_not_keep(
    name: str,
    change: Callable[[Document], None],
    code: str,
    says: str,
    folder_copy: Path,
    call_cli: CallCli,
) -> None:
    only(folder_copy, name)
    edit(folder_copy, lambda document: change(entry(document, name)))
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 1, done.stderr
    assert codes(report_of(done), name) == {code}
    assert f"{code}: {name}" in done.stderr
    assert says in done.stderr


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_torchscript_with_other_names_than_promised(
    kind: str, folder_copy: Path, call_cli: CallCli
) -> None:
    only(folder_copy, SCRIPT)
    edit(folder_copy, lambda document: entry(document, SCRIPT)[kind][0].update(name="x"))
    done = call_cli(CHECK, folder_copy, "--runtime", "torchscript", "--no-latency")
    assert done.returncode == 1, done.stderr
    assert "x" in done.stderr


def test_an_onnx_file_that_renames_its_output(folder_copy: Path, call_cli: CallCli) -> None:
    def rename(model: onnx.ModelProto) -> None:
        (node,) = [node for node in model.graph.node if "output" in node.output]
        node.output[0] = model.graph.output[0].name = "logits"

    alter(folder_copy, DYNAMIC, rename)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 1, done.stderr
    assert codes(report_of(done), DYNAMIC) == {"outputs_differ", "output_missing"}
    assert "outputs are ['logits'], promised ['output']" in done.stderr


# Wrong numbers
