"""Small ONNX graphs, the functions that they stand for, and golden packs without an export."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from linattn_runtime_checks.blame.inexact import excused
from linattn_runtime_checks.checks.parity import run_cases
from linattn_runtime_checks.contract.golden_pack import (
    Case,
    ReferenceIndex,
    StoredError,
    open_reference,
    write_reference,
)
from linattn_runtime_checks.contract.manifest import Artifact, AxisRange, TensorSpec
from linattn_runtime_checks.contract.verdict import Error, error_of
from linattn_runtime_checks.results.report import CaseResult
from linattn_runtime_checks.runtimes.base import Session, SessionOptions
from linattn_runtime_checks.runtimes.onnx_runtime import ORT_CPU

Array = NDArray[Any]
Truth = Callable[[Array], Array]
SIZES = ((1, 1), (2, 7), (3, 40))


@dataclass(frozen=True)
class Net:
    """A graph from ``x`` to ``y`` and what it stands for, of inputs in float64.

    ``scale`` and ``offset`` say where its inputs lie.
    """

    nodes: Sequence[onnx.NodeProto]
    truth: Truth
    constants: dict[str, Array] = field(default_factory=dict)
    width: int = 8
    scale: float = 1.0
    offset: float = 0.0
    opset: int = 18


def node(op: str, *names: str, **attributes: Any) -> onnx.NodeProto:
    """From inputs and, last, one output."""
    return helper.make_node(
        op, list(names[:-1]), [names[-1]], name=f"the_{op}_{names[-1]}", **attributes
    )


def save(net: Net, path: Path) -> None:
    shape: list[str | int | None] = ["batch", "sequence", net.width]
    graph = helper.make_graph(
        list(net.nodes),
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in net.constants.items()],
    )
    opset = helper.make_opsetid("", net.opset)
    ir = 8 if net.opset < 19 else 10
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=ir), path)


def rounding(truth: Truth, x: Array, expected: Array) -> tuple[Error, Error]:
    """Of a good implementation in single precision, and of inputs moved by one rounding."""
    eager = error_of(expected.astype(np.float32), expected)
    chance, moved = np.random.default_rng(1), Error(row=0, whole=0)
    for _ in range(4):
        near = x * (1 + 2.0**-24 * chance.uniform(-1, 1, x.shape))
        moved = moved.largest(error_of(truth(near), expected))
    return eager, moved


def write_pack(net: Net, path: Path) -> None:
    chance, cases = np.random.default_rng(0), list[Case]()
    tensors: dict[str, Array] = {}
    for batch, sequence in SIZES:
        drawn = net.scale * chance.standard_normal((batch, sequence, net.width)) + net.offset
        x = drawn.astype(np.float32)
        expected = net.truth(x.astype(np.float64))
        name = f"normal-b{batch}-n{sequence}"
        tensors |= {f"{name}/input/x": x, f"{name}/output/y": expected}
        eager, moved = (
            StoredError(row=e.row, whole=e.whole)
            for e in rounding(net.truth, x.astype(np.float64), expected)
        )
        cases.append(
            Case(name=name, family="normal", batch=batch, sequence=sequence, stored=name,
                 eager_error=eager, sensitivity=moved)
        )  # fmt: skip
    write_reference(path, ReferenceIndex(dtype="float32", cases=cases), tensors)


def artifact(net: Net) -> Artifact:
    axes: list[int | str] = ["batch", "sequence", net.width]
    x = TensorSpec(name="x", dtype="float32", shape=axes, axes=axes)
    return Artifact(
        path="model.onnx", sha256="0" * 64, bytes=1, id="net/own/onnx/dynamic", model="net",
        method="own", config={}, format="onnx", variant="dynamic", dtype="float32", parameters=0,
        weight_bytes=0, inputs=[x], outputs=[x.model_copy(update={"name": "y"})],
        axes=[AxisRange(name=name, declared=(1, 64), captured=3) for name in ("batch", "sequence")],
        reference="pack.safetensors",
    )  # fmt: skip


Wrap = Callable[[Session], Session]


def judged(
    net: Net,
    folder: Path,
    *,
    mode: str = "optimizer-off",
    wrap: Wrap = lambda session: session,
    change: Callable[[list[CaseResult]], None] = lambda results: None,
) -> tuple[list[CaseResult], list[CaseResult]]:
    """The results of the cases before and after kernels were asked for.

    Args:
        net: the file.
        folder: to write to.
        mode: of ONNX Runtime.
        wrap: what is done to the session.
        change: what is done to the results before.
    """
    save(net, folder / "model.onnx")
    write_pack(net, folder / "pack.safetensors")
    entry = artifact(net)
    with ExitStack() as stack:
        pack = stack.enter_context(open_reference(folder / entry.reference))
        options = SessionOptions(mode=mode, threads=1)
        session = wrap(ORT_CPU.open(folder / entry.path, entry, options))
        before = list(run_cases(session, entry, pack, mode, lambda name: None))
        change(before)
        after = excused(folder / entry.path, entry, [(pack, before)], session, lambda step: None)
    return before, after
