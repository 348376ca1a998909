"""One node of an ONNX graph at a time: as ONNX Runtime computes it, and in double precision.

In double are constants, attributes and the bodies of If, Loop and Scan too. A cast to half
precision or bfloat16 stays what it is: it says what the file computes, not how exactly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.runtimes.base import Tensors

if TYPE_CHECKING:
    import onnx

NO_OPTIMIZER = "ORT_DISABLE_ALL"
_NAMES_A_DTYPE = ("to", "dtype", "output_datatype")
# Where ONNX Runtime's double kernels are no better than its float ones: they are clamped fits, and
# Sigmoid of -30 is 2 % off in double too; Gelu has constants in single precision. The reference of
# the standard is numpy there.
_FROM_THE_STANDARD = {"Sigmoid", "Softplus", "Mish", "Gelu", "DFT"}
Formula = Callable[[NDArray[np.float64], Mapping[str, float]], NDArray[np.float64]]
# Where the reference loses digits too: it subtracts 1 from exp(x).
_FORMULAS: dict[str, Formula] = {
    "Elu": lambda x, a: _above_zero(x, a["alpha"] * np.expm1(np.minimum(x, 0.0))),
    "Celu": lambda x, a: _above_zero(x, a["alpha"] * np.expm1(np.minimum(x, 0.0) / a["alpha"])),
    "Selu": lambda x, a: a["gamma"] * _above_zero(x, a["alpha"] * np.expm1(np.minimum(x, 0.0))),
}


class CannotWiden(Exception):
    """Nothing here computes this node in double precision."""


class Nodes:
    """The nodes of a graph, each run alone; what is opened for one is kept for the next input."""

    def __init__(self, model: "onnx.ModelProto") -> None:
        from onnx.inliner import inline_local_functions

        self.model = inline_local_functions(model) if model.functions else model
        self.nodes = list(self.model.graph.node)  # in topological order: the standard demands it
        self._opened: dict[tuple[int, bool, tuple[str, ...]], Any] = {}
        self._uses = [
            [name for name in dict.fromkeys([*node.input, *_outer(node)]) if name]
            for node in self.nodes
        ]
        self._last = {name: i for i, used in enumerate(self._uses) for name in used}

    def uses(self, index: int) -> list[str]:
        """The tensors that a node uses."""
        return self._uses[index]

    def weights(self) -> Tensors:
        """Every initializer by name."""
        import onnx

        items = self.model.graph.initializer
        return {item.name: onnx.numpy_helper.to_array(item) for item in items}

    def walk(self, inputs: Tensors) -> Iterator[tuple[int, Tensors]]:
        """Every node and the tensors so far, which the caller adds the node's outputs to.

        What no later node uses is forgotten.
        """
        kept = {value.name for value in self.model.graph.output}
        values = self.weights() | inputs
        for index, used in enumerate(self._uses):
            yield index, values
            for name in used:
                if self._last[name] == index and name not in kept:
                    values.pop(name, None)

    def run(self, index: int, values: Mapping[str, Any], *, wide: bool) -> Tensors:
        """The outputs of one node by name.

        Args:
            index: of the node.
            values: all tensors that it uses, in single precision or in double.
            wide: compute in double precision.

        Raises:
            CannotWiden: it cannot be computed so.
        """
        node = self.nodes[index]
        feeds = {name: values[name] for name in self._uses[index]}
        if wide:
            single = _single_only(node, self._opset(node.domain))
            feeds = {
                name: _in(np.float32 if name in single else np.float64, value)
                for name, value in feeds.items()
            }
        key = (index, wide, tuple(str(x.dtype) for x in feeds.values()))
        names = [name for name in node.output if name]
        with np.errstate(all="ignore"):  # NaN and infinity are values like others here
            try:
                if key not in self._opened:
                    self._opened[key] = self._open(node, feeds, wide=wide)
                found = self._opened[key].run(names, feeds)
            except Exception as error:  # of ONNX Runtime, of the reference, of numpy
                raise CannotWiden(f"{node.op_type} {node.name}: {error}") from error
        if not all(isinstance(value, np.ndarray | np.generic) for value in found):
            raise CannotWiden(f"{node.op_type} {node.name} gives what is no tensor")
        return {name: np.asarray(value) for name, value in zip(names, found, strict=True)}

    def _opset(self, domain: str) -> int:
        return next((o.version for o in self.model.opset_import if o.domain == domain), 1)

    def _open(self, node: Any, feeds: Tensors, *, wide: bool) -> Any:
        import onnx
        from onnx.reference import ReferenceEvaluator

        graph = onnx.GraphProto(name="one")
        graph.node.append(_widened(node) if wide else node)
        for name, value in feeds.items():
            kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, None))
        # Without a type: it is inferred.
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
        model = onnx.helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
        )
        if not wide:
            return open_on_cpu(model)
        if node.op_type in _FORMULAS and not node.domain:
            return _Formula(node, self._opset(node.domain))
        if node.op_type not in _FROM_THE_STANDARD:
            try:
                return open_on_cpu(model)
            except Exception:  # no kernel for double
                pass
        return ReferenceEvaluator(model)


class _Formula:
    """A node of one input and one output, as numpy computes it."""

    def __init__(self, node: Any, opset: int) -> None:
        import onnx

        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        given = {item.name: item.f for item in node.attribute}
        usual = {name: item.default_value.f for name, item in schema.attributes.items()}
        self._compute, self._attributes = _FORMULAS[node.op_type], usual | given

    def run(self, names: Sequence[str], feeds: Tensors) -> list[NDArray[np.float64]]:
        (value,) = feeds.values()
        return [self._compute(value, self._attributes) for _ in names]


def _above_zero(x: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(x > 0, x, below)


def open_on_cpu(model: "onnx.ModelProto", level: str = NO_OPTIMIZER) -> Any:
    """A session of ONNX Runtime, with its optimiser as it names the level."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    data = model.SerializeToString()
    return ort.InferenceSession(data, settings, providers=["CPUExecutionProvider"])


def _in(dtype: type, value: Any) -> Any:
    """In single or double precision, where it is in one of the two."""
    return value.astype(dtype, copy=False) if value.dtype in (np.float32, np.float64) else value


def _single_only(node: Any, opset: int) -> set[str]:
    """The inputs that the standard wants in single precision, as the scales of Resize."""
    import onnx

    if node.op_type in _FORMULAS:
        return set()
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return set()
    return {
        name
        for name, formal in zip(node.input, schema.inputs, strict=False)
        if "tensor(double)" not in formal.types
    }


def _outer(node: Any) -> list[str]:
    """The tensors that the bodies of a node use and do not make."""
    found: list[str] = []
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
        for graph in graphs:
            made = {item.name for item in (*graph.input, *graph.initializer)}
            made |= {name for inner in graph.node for name in inner.output}
            used = [name for inner in graph.node for name in (*inner.input, *_outer(inner))]
            used += [item.name for item in graph.output]
            found += [name for name in used if name and name not in made]
    return list(dict.fromkeys(found))


def _widened(node: Any) -> Any:
    """A copy of ``node`` in double precision."""
    import onnx

    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    for attribute in wide.attribute:
        kind = attribute.type
        if kind == onnx.AttributeProto.INT and attribute.name in _NAMES_A_DTYPE:
            if attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE
        elif kind == onnx.AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            single = kind == onnx.AttributeProto.FLOAT
            value = np.array(attribute.f if single else list(attribute.floats), np.float64)
            tensor = onnx.numpy_helper.from_array(value)
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
        elif kind == onnx.AttributeProto.GRAPH:
            _widen_graph(attribute.g)
    return wide


def _widen_graph(graph: Any) -> None:
    import onnx

    for item in graph.initializer:
        _widen_tensor(item)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    del graph.value_info[:]
    nodes = [_widened(node) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_tensor(tensor: Any) -> None:
    import onnx

    if tensor.data_type == onnx.TensorProto.FLOAT:
        value = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
