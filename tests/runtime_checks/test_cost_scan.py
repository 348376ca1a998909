"""A Scan is linear where no turn of it does more the longer the sequence is."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cost_graphs import artifact_of, certify


def body(nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
    """From the state ``s`` and the token ``x`` to the state ``t`` and the output ``o``."""
    shape: list[str | int | None] = ["batch", 8]

    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    return helper.make_graph(nodes, "turn", [value("s"), value("x")], [value("t"), value("o")])


def graph(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    scan = helper.make_node(
        "Scan", ["first", "q"], ["last", "y"], "turns",
        body=body(nodes), num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
    )  # fmt: skip
    return [
        helper.make_node("ReduceMax", ["q", "axis"], ["first"], "start", keepdims=0),
        # What a wrong body reads.
        helper.make_node("Transpose", ["k"], ["turned"], "turn", perm=[0, 2, 1]),
        scan,
    ]


AXIS = {"axis": np.array([1])}
SUM = helper.make_node("Add", ["s", "x"], ["t"])
OUT = helper.make_node("Identity", ["t"], ["o"])


def test_turns_of_one_size_are_linear(tmp_path: Path) -> None:
    found = certify(tmp_path, graph([SUM, OUT]), artifact_of(), weights=AXIS)
    assert (found.kind, found.note) == ("linear", "")


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            [
                helper.make_node("ReduceMax", ["turned", "minus"], ["m"], keepdims=0),
                helper.make_node("Add", ["s", "x"], ["u"]),
                helper.make_node("Add", ["u", "m"], ["t"]),
                OUT,
            ],
            "ReduceMax in its body",
        ),
        (
            [
                helper.make_node("MatMul", ["turned", "k"], ["square"]),
                SUM,
                OUT,
            ],
            "takes in each turn all of turned, which grows with the length",
        ),
        (
            [helper.make_node("Expand", ["x", "shape"], ["wide"]), SUM, OUT],
            "Expand in its body, which may size its result by a number",
        ),
    ],
)
def test_turns_that_may_grow_are_unknown(
    nodes: list[onnx.NodeProto], reason: str, tmp_path: Path
) -> None:
    weights = AXIS | {"minus": np.array([2]), "shape": np.array([1, 1, 8])}
    found = certify(tmp_path, graph(nodes), artifact_of(), weights=weights)
    assert found.kind == "unknown"
    assert reason in found.note
