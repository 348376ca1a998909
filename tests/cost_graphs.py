"""Graphs made by hand, and their certificates of cost."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from linattn_runtime_checks.contract.manifest import Artifact, AxisRange, TensorSpec
from linattn_runtime_checks.cost.certificate import CostCertificate
from linattn_runtime_checks.cost.graph import certify_onnx

WIDTH = 8


LINEAR = [
    helper.make_node("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
    helper.make_node("MatMul", ["kt", "v"], ["kv"], "keys_by_values"),
    helper.make_node("MatMul", ["q", "kv"], ["y"], "queries_by_both"),
]


QUADRATIC = [
    LINEAR[0],
    helper.make_node("MatMul", ["q", "kt"], ["scores"], "queries_by_keys"),
    helper.make_node("MatMul", ["scores", "v"], ["y"], "scores_by_values"),
]


def artifact_of(
    sequence: tuple[int, int] = (1, 4096), batch: tuple[int, int] = (1, 8), width: int = WIDTH
) -> Artifact:
    length: int | str = sequence[0] if sequence[0] == sequence[1] else "sequence"
    specs = [TensorSpec(name=n, dtype="float32", shape=["batch", length, width]) for n in "qkv"]
    return Artifact.model_construct(
        inputs=specs,
        axes=[
            AxisRange(name="batch", declared=batch, captured=batch[0]),
            AxisRange(name="sequence", declared=sequence, captured=sequence[0]),
        ],
    )


def certify(
    folder: Path,
    nodes: list[onnx.NodeProto],
    artifact: Artifact,
    *,
    weights: dict[str, Any] | None = None,
    value_info: list[onnx.ValueInfoProto] | None = None,
    optimized: bool = False,
) -> CostCertificate:
    """The certificate of a graph of ``nodes`` from q, k and v to y."""
    graph = helper.make_graph(
        nodes,
        "attention",
        [
            helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape)
            for s in artifact.inputs
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (weights or {}).items()],
        value_info=value_info or [],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return certify_onnx(path, artifact, optimized=optimized)
