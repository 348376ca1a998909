"""The cost of an artifact, certified from its graph; faults are planted in hand-made ones."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cost_graphs import LINEAR, QUADRATIC, WIDTH, artifact_of, certify
from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.cost.axes import interpolate, text
from linattn_runtime_checks.cost.graph import certify_onnx


@pytest.mark.parametrize("optimized", [False, True])
def test_the_order_of_the_products_decides(optimized: bool, tmp_path: Path) -> None:
    linear = certify(tmp_path, LINEAR, artifact_of(), optimized=optimized)
    assert (linear.kind, linear.quadratic, linear.note) == ("linear", [], "")
    assert linear.largest[0].shape == ["batch", "sequence", WIDTH]
    quadratic = certify(tmp_path, QUADRATIC, artifact_of(), optimized=optimized)
    assert quadratic.kind == "quadratic"
    (scores,) = quadratic.quadratic
    assert scores.node.startswith("queries_by_keys"), "a fusion appends its own name"
    assert scores.shape == ["batch", "sequence", "sequence"]
    assert (scores.degree, quadratic.largest[0]) == (2, scores)


def test_the_labels_of_the_file_are_not_believed(tmp_path: Path) -> None:
    lie = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", WIDTH, WIDTH])
    found = certify(tmp_path, QUADRATIC, artifact_of(), value_info=[lie])
    assert [tensor.node for tensor in found.quadratic] == ["queries_by_keys"]


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], f"the_{output}", **attributes)


@pytest.mark.parametrize(
    ("nodes", "shape", "degree"),
    [
        ([node("Concat", "q q q k", "z", axis=1)], ["batch", "4*sequence", WIDTH], 1),
        ([node("Pad", "q one_more", "z")], ["batch", "sequence + 1", WIDTH], 1),
        (
            [node("Reshape", "q tokens", "t"), node("Concat", "t t", "z", axis=1)],
            ["batch*sequence", 2 * WIDTH],
            1,
        ),
        (
            [*QUADRATIC[:2], node("Reshape", "scores flat", "z")],
            ["batch", "sequence*sequence"],
            2,
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_sizes_are_written_as_they_grow(
    nodes: list[onnx.NodeProto], shape: list[int | str], degree: int, tmp_path: Path
) -> None:
    weights = {"one_more": [0, 0, 0, 0, 1, 0], "tokens": [-1, WIDTH], "flat": [0, -1]}
    nodes = [*nodes, node("Identity", "q", "y")]
    found = certify(tmp_path, nodes, artifact_of(), weights=weights)
    (tensor,) = [t for t in found.largest if t.name == "z"]
    assert (tensor.node, tensor.shape, tensor.degree) == ("the_z", shape, degree)
    assert found.kind == ("quadratic" if degree == 2 else "linear")
    assert found.tensors == 3 + len(nodes), "the inputs, and the output of every node"


def test_sizes_that_follow_no_polynomial_have_none() -> None:
    lengths = (37, 48, 59, 70, 81)
    assert interpolate({(1, n): -(-n // 64) * 64 for n in lengths}) is None
    assert interpolate({(1, n): n for n in (1, 2)}) == interpolate({(1, 1): 1, (1, 2): 2})
    assert interpolate({(1, 1): 1, (1, 2): 2}) is None, "two lengths leave none to confirm it"
    product = interpolate({(b, n): b * n * (n + 1) // 2 for b in (1, 2) for n in lengths})
    assert product is not None
    assert text(product) == "1/2*batch*sequence*sequence + 1/2*batch*sequence"
    assert text(interpolate({(b, 7): 3 * b - 1 for b in (1, 2)}) or {}) == "3*batch - 1"


def test_a_size_that_jumps_is_never_called_linear(tmp_path: Path) -> None:
    """Its length is that of the sequence, and for some lengths none."""
    zeros = [
        helper.make_node("Shape", ["q"], ["size"], "size", start=1, end=2),
        helper.make_node("Mul", ["size", "size"], ["square"], "square"),
        helper.make_node("Mod", ["square", "seven"], ["rest"], "rest"),
        helper.make_node("ConstantOfShape", ["rest"], ["z"], "jumps"),
    ]
    found = certify(tmp_path, [*LINEAR, *zeros], artifact_of(), weights={"seven": [7]})
    assert found.kind == "unknown"
    assert "z of node jumps (ConstantOfShape) has sizes that are no polynomial" in found.note


def test_a_size_rounded_up_is_linear_over_whole_blocks(tmp_path: Path) -> None:
    halves = helper.make_node("Slice", ["q", "zero", "end", "one", "two"], ["z"], "every_other")
    weights = {"zero": [0], "end": [2**31], "one": [1], "two": [2]}
    found = certify(tmp_path, [*LINEAR, halves], artifact_of(), weights=weights)
    assert (found.kind, found.note) == ("linear", "")
    short = certify(tmp_path, [*LINEAR, halves], artifact_of((1, 24)), weights=weights)
    assert short.kind == "unknown"
    assert "z of node every_other (Slice) has sizes that are no polynomial" in short.note


BODY = helper.make_graph(
    [helper.make_node("Identity", ["q"], ["inner"])],
    "body",
    [],
    [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
)
HIDDEN = {
    "has a body": node("If", "true", "z", then_branch=BODY, else_branch=BODY),
    "does work": node("Einsum", "q k v", "z", equation="bid,bjd,bje->bie"),
    "has a kernel that may grow": node("Conv", "q k", "z"),
    "of com.microsoft may do work": node(
        "MultiHeadAttention", "q k v", "z", domain="com.microsoft", num_heads=1
    ),
}


@pytest.mark.parametrize(("reason", "hiding"), HIDDEN.items(), ids=str)
def test_work_that_no_tensor_shows_is_never_called_linear(
    reason: str, hiding: onnx.NodeProto, tmp_path: Path
) -> None:
    nodes = [*LINEAR, hiding]
    weights = {"true": np.array(True)}
    artifact = artifact_of()
    if hiding.op_type == "Conv":  # every token of q with a kernel of as many tokens of k
        nodes[-1:] = [node("Transpose", "q", "qt", perm=[0, 2, 1]), node("Conv", "qt kt", "z")]
        artifact = artifact_of(batch=(1, 1))
    found = certify(tmp_path, nodes, artifact, weights=weights)
    assert found.kind == "unknown"
    assert f"node the_z ({hiding.op_type}) {reason}" in found.note


def test_what_cannot_be_run_is_unknown(tmp_path: Path) -> None:
    assert "cannot be run" in certify(tmp_path, [node("Nonsense", "q", "y")], artifact_of()).note
    static = artifact_of((16, 16))
    found = certify(tmp_path, LINEAR, static)
    assert found.kind == "linear"
    found = certify_onnx(tmp_path / "model.onnx", artifact_of((1, 64)))
    assert (found.kind, found.tensors) == ("unknown", 0), "the file takes 16 tokens only"
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ExportError, match=r"model\.onnx is not an ONNX model.*build the folder"):
        certify_onnx(tmp_path / "model.onnx", static)


@pytest.mark.parametrize(
    ("nodes", "length", "kind"),
    [
        (LINEAR, 16, "linear"),
        (QUADRATIC, 16, "quadratic"),
        (QUADRATIC, 5, "quadratic"),
        (LINEAR, WIDTH, "unknown"),
        (QUADRATIC, WIDTH, "unknown"),
        (LINEAR, 1, "unknown"),
    ],
)
def test_one_length_is_judged_where_it_is_no_width(
    nodes: list[onnx.NodeProto], length: int, kind: str, tmp_path: Path
) -> None:
    found = certify(tmp_path, nodes, artifact_of((length, length)))
    assert found.kind == kind
    assert [tensor.node for tensor in found.quadratic] == ["queries_by_keys"] * (
        kind == "quadratic"
    )
    assert (f"{length}, which is the length too" in found.note) == (kind == "unknown")


def test_one_length_that_a_width_was_split_into_is_unknown(tmp_path: Path) -> None:
    """Heads of 4 channels and 4 tokens: keys by values look like scores."""
    heads = [node("Reshape", f"{n} split", f"{n}h") for n in "qkv"]
    heads += [node("Transpose", f"{n}h", n * 2, perm=[0, 2, 1, 3]) for n in "qkv"]
    turn = node("Transpose", "kh", "kt", perm=[0, 2, 3, 1])
    nodes = [*heads, turn, node("MatMul", "kt vv", "kv"), node("MatMul", "qq kv", "y")]
    weights = {"split": [0, 0, 2, 4]}
    found = certify(tmp_path, nodes, artifact_of((4, 4)), weights=weights)
    assert found.kind == "unknown"
    assert "may have heads of 4" in found.note
    assert certify(tmp_path, nodes, artifact_of((6, 6)), weights=weights).kind == "linear"


def test_one_length_and_other_sizes_near_it_are_unknown(tmp_path: Path) -> None:
    """Scores of 17 x 17, for one token more than the length."""
    nodes = [
        *(node("Pad", f"{n} one_more", f"{n}1") for n in "qk"),
        node("Transpose", "k1", "kt", perm=[0, 2, 1]),
        node("MatMul", "q1 kt", "y"),
    ]
    weights = {"one_more": [0, 0, 0, 0, 1, 0]}
    found = certify(tmp_path, nodes, artifact_of((16, 16)), weights=weights)
    assert found.kind == "unknown"
    assert "y [batch, 17, 17] of node the_y has axes that neither" in found.note
    assert certify(tmp_path, nodes, artifact_of(), weights=weights).kind == "quadratic"


def test_a_loop_over_tokens_that_was_unrolled_is_unknown(tmp_path: Path) -> None:
    nodes = [LINEAR[0], *(node("Gather", f"q at{i}", f"q{i}", axis=1) for i in range(6))]
    nodes += [node("MatMul", f"q{i} kt", f"s{i}") for i in range(6)]
    nodes += [node("MatMul", f"s{i} v", f"y{i}") for i in range(6)]
    nodes += [node("Concat", " ".join(f"y{i}" for i in range(6)), "y", axis=1)]
    weights = {f"at{i}": [i] for i in range(6)}
    found = certify(tmp_path, nodes, artifact_of((6, 6), width=7), weights=weights)
    assert found.kind == "unknown"
    assert "MatMul makes 6 tensors ['batch', 1, 6]" in found.note
