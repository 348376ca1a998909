"""Small exported models, and faults to plant in their graphs."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from linattn_export.formats.base import Job
from linattn_export.formats.onnx_graph import FORMAT as ONNX
from linattn_export.golden.fingerprints import fingerprints
from linattn_export.inputs.drawing import draw
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_runtime_checks.blame.nodes import Departure, first_departing_node
from linattn_runtime_checks.blame.optimizers import Setting, open_optimized
from linattn_runtime_checks.contract.fingerprint import Fingerprint
from linattn_runtime_checks.runtimes.base import Tensors

Plant = Callable[[onnx.ModelProto], set[str]]
"""Damages a model; returns the names of the nodes that may be blamed for it."""

LAYOUT = {"Transpose", "Reshape", "Squeeze", "Unsqueeze"}


@dataclass(frozen=True)
class Made:
    """An exported model, one input, and what the captured program computes for it."""

    path: Path
    inputs: Tensors
    known: list[Fingerprint]

    def load(self) -> onnx.ModelProto:
        return onnx.load(self.path)

    def optimized(self, model: onnx.ModelProto, folder: Path, level: str) -> onnx.ModelProto:
        """``model`` as ONNX Runtime rewrites it."""
        onnx.save(model, folder / "plain.onnx")
        open_optimized(folder / "plain.onnx", Setting(level=level), folder / "optimized.onnx")
        return onnx.load(folder / "optimized.onnx")

    def blame(self, model: onnx.ModelProto) -> Departure | None:
        return first_departing_node(model, self.inputs, self.known)


@functools.cache
def make(
    folder: Path, method: str, model: str = "layer", *, mask: bool = False, dtype: str = "fp32"
) -> Made:
    """One export into ``folder``; equal calls share it."""
    request = BuildRequest(
        methods=(method,),
        models=(model,),
        lengths=(),
        dynamic="1:64",
        batch="1:4",
        mask=mask,
        d_model=None if model == "digits" else 32,
        heads=None if model == "digits" else 2,
        options={"linformer": {"rank": 8, "max_length": 64}} if method == "linformer" else {},
        dtype=dtype,
        entries=("forward",),
    )
    (subject,) = make_subjects(request)
    job = Job(subject=subject, variant=subject.variants[0], opset=18)
    path = folder / f"{model}-{method}-{mask}-{dtype}.onnx"
    ONNX.write(job, path)
    inputs = draw(
        subject.inputs,
        {"batch": 3, "sequence": 37},
        family="right-padding" if mask else "normal",
        dtype=subject.dtype,
        seed=0,
        task=subject.task,
    )
    known = fingerprints(job.program, inputs)
    return Made(path, {name: x.numpy() for name, x in inputs.items()}, known)


def node_of(model: onnx.ModelProto, op: str, place: int = 0) -> Any:
    return [node for node in model.graph.node if node.op_type == op][place]


def projection(model: onnx.ModelProto, part: int) -> str:
    """The weights that make the query (0), key (1) or value (2)."""
    return str(node_of(model, "Gemm", part).input[1])


def users_of(model: onnx.ModelProto, tensor: str) -> set[str]:
    """The nodes that compute something from ``tensor``; layout is looked through."""
    found: set[str] = set()
    for node in model.graph.node:
        if tensor in node.input:
            found |= users_of(model, node.output[0]) if node.op_type in LAYOUT else {node.name}
    return found


def change(model: onnx.ModelProto, name: str, damage: Callable[[Any], Any]) -> set[str]:
    """Replace the initializer ``name``."""
    (item,) = [item for item in model.graph.initializer if item.name == name]
    array = numpy_helper.to_array(item).copy()
    item.CopyFrom(numpy_helper.from_array(np.asarray(damage(array), array.dtype), name))
    return users_of(model, name)


def bypass(model: onnx.ModelProto, node: Any) -> set[str]:
    """Hand the first input of ``node`` on in place of its output."""
    source, output = node.input[0], node.output[0]
    model.graph.node.remove(node)
    if output in {value.name for value in model.graph.output}:
        (producer,) = [n for n in model.graph.node if source in n.output]
        producer.output[list(producer.output).index(source)] = output
        return {producer.name}  # nothing is left to use it
    for other in model.graph.node:
        for i, name in enumerate(other.input):
            if name == output:
                other.input[i] = source
    return users_of(model, source)


def scaled_query(factor: float) -> Plant:
    def plant(model: onnx.ModelProto) -> set[str]:
        return change(model, projection(model, 0), lambda w: w * factor)

    return plant


def one_element(model: onnx.ModelProto) -> set[str]:
    def damage(w: Any) -> Any:
        w[3, 5] += 0.1
        return w

    return change(model, projection(model, 0), damage)


def nan_in_a_weight(model: onnx.ModelProto) -> set[str]:
    def damage(w: Any) -> Any:
        w[8, 0] = np.nan
        return w

    return change(model, projection(model, 1), damage)


def output_bias(model: onnx.ModelProto) -> set[str]:
    node = node_of(model, "Gemm", -1)
    bias = numpy_helper.from_array(np.full(32, 0.01, np.float32), "bias")  # it has none of its own
    model.graph.initializer.append(bias)
    node.input.append("bias")
    return {node.name}


def output_weight(model: onnx.ModelProto) -> set[str]:
    return change(model, node_of(model, "Gemm", -1).input[1], lambda w: w * 1.001)


def softmax_axis(place: int) -> Plant:
    def plant(model: onnx.ModelProto) -> set[str]:
        node = node_of(model, "Softmax", place)
        (axis,) = [a for a in node.attribute if a.name == "axis"]
        axis.i = -2 if axis.i in (-1, 3) else -1
        return {node.name}

    return plant


def scale(model: onnx.ModelProto) -> set[str]:
    return change(model, node_of(model, "Mul").input[1], lambda s: s * 1.001)


def normaliser_dropped(model: onnx.ModelProto) -> set[str]:
    return bypass(model, node_of(model, "Div", -1))


def normaliser_off_by_a_ten_thousandth(model: onnx.ModelProto) -> set[str]:
    node = node_of(model, "Div", -1)
    (term,) = [n for n in model.graph.node if node.input[1] in n.output]
    factor = numpy_helper.from_array(np.array(1.0001, np.float32), "factor")
    model.graph.initializer.append(factor)
    place = list(model.graph.node).index(term)
    wrong = onnx.helper.make_node("Mul", [term.output[0], "factor"], ["wrong"], "planted")
    model.graph.node.insert(place + 1, wrong)
    node.input[1] = "wrong"
    return {"planted"}


def slots_swapped(model: onnx.ModelProto) -> set[str]:
    first, second = (node for node in model.graph.node if node.op_type == "Slice" and
                     node.input[0] in {i.name for i in model.graph.initializer})  # fmt: skip
    first.input[0], second.input[0] = second.input[0], first.input[0]
    return users_of(model, first.output[0]) | users_of(model, second.output[0])


def mask_inverted(model: onnx.ModelProto) -> set[str]:
    node = node_of(model, "Not")
    node.op_type = "Identity"
    return users_of(model, node.output[0])


def mask_not_applied(model: onnx.ModelProto) -> set[str]:
    node = node_of(model, "Where")
    node.input[0], node.input[1], node.input[2] = node.input[0], node.input[2], node.input[2]
    return {node.name} | users_of(model, node.output[0])


def wrong_operator(model: onnx.ModelProto) -> set[str]:
    node = next(n for n in model.graph.node if n.op_type == "Relu")
    node.op_type = "Abs"
    return {node.name}
