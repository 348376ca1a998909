"""Finds the first node of an ONNX graph whose values the captured program never computes.

A tensor of the graph MATCHES when its fingerprint is among those of the program. It is SETTLED
when it matches, or when everything that is computed from it goes through tensors that do: right
graphs hold tensors without a counterpart, such as the half-way values of an operator that one side
has and the other spells out. What is not settled and comes first is where the graph departs.

Matching one of the things computed from a tensor is not enough to settle it: where one projection
makes query, key and value at once and its query part is wrong, key and value still match.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.contract.fingerprint import TOLERANCE, Fingerprint
from linattn_runtime_checks.runtimes.base import RunFailed, Tensors

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """The first node that is wrong.

    Attributes:
        node: its name; that of its output where it has none.
        op: its operator, with the domain where that is not the standard one.
        output: the tensor whose values are wrong.
        after: the nodes (``OP NAME``) that feed it and were the last to match; empty where it
            works on the model's inputs and weights alone.
        message: all this as a sentence, and what the program computes at this place.
    """

    node: str
    op: str
    output: str
    after: list[str]
    message: str


def first_departing_node(
    model: "onnx.ModelProto", inputs: Tensors, known: Sequence[Fingerprint]
) -> Departure | None:
    """Where ``model`` leaves the program, or None if its output is the program's.

    The graph runs as it stands, on the CPU and without optimisation; it may be one that ONNX
    Runtime optimised and wrote. Bodies of If, Loop and Scan are not entered.

    Args:
        model: with one output; it is not changed.
        inputs: by name, the ones that ``known`` was made with.
        known: what the program computes, in its order; the last one is its output.

    Raises:
        ExportError: ONNX Runtime cannot load the model.
        RunFailed: it cannot run these inputs.
        ValueError: ``known`` is empty.
    """
    if not known:
        raise ValueError("there are no fingerprints to compare with; build the folder again")
    return _Search(model, inputs, known).find()


class _Search:
    """One graph, the values of its tensors, and what the program knows of them."""

    def __init__(
        self, model: "onnx.ModelProto", inputs: Tensors, known: Sequence[Fingerprint]
    ) -> None:
        values = _run_exposed(model, inputs)
        self.nodes = list(model.graph.node)  # in topological order: the standard demands it
        self.known = known
        self.outputs = {value.name for value in model.graph.output}
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        self.consumers: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)
        half = any(value.dtype == np.float16 for value in values.values())
        self.tolerance = TOLERANCE["float16" if half else "float32"]
        self.judged = {
            name: Fingerprint.of(value, name, self.producers[name].op_type)
            for name, value in values.items()
            if name in self.producers and (value.size > 1 or (value.size and name in self.outputs))
        }
        self.matches = {name: self._matches(name) for name in self.judged}
        self.given = [
            Fingerprint.of(value, name, "given")
            for name, value in (inputs | _weights(model)).items()
            if _is_floating(value) and value.size > 1
        ]
        self.settled = self._settle()

    def find(self) -> Departure | None:
        for node in self.nodes:
            for name in node.output:
                if name in self.judged and not self.settled[name]:
                    return self._departure(node, name)
        return None

    def _matches(self, name: str) -> list[int]:
        """The places in ``known`` of everything that has these values."""
        mine = self.judged[name]
        return [i for i, k in enumerate(self.known) if k.matches(mine, self.tolerance)]

    def _settle(self) -> dict[str, bool]:
        settled: dict[str, bool] = {}
        last = len(self.known) - 1
        for node in reversed(self.nodes):
            for name in node.output:
                if name in self.outputs:
                    # A step left out at the end hands on what the program computes before it.
                    settled[name] = last in self.matches.get(name, [])
                else:
                    after = [o for user in self.consumers.get(name, []) for o in user.output]
                    settled[name] = (
                        bool(self.matches.get(name))
                        or all(settled[o] for o in after)
                        or self._is_copy(name)
                    )
        return settled

    def _is_copy(self, name: str) -> bool:
        """Whether it only hands on an input or a weight, as a Cast does; its user is to blame."""
        mine = self.judged.get(name)
        return mine is not None and any(mine.matches(g, self.tolerance) for g in self.given)

    def _last_matching(self, node: Any) -> dict[str, str]:
        """Tensor to ``OP NAME`` of the nearest nodes upstream that match."""
        found: dict[str, str] = {}
        seen: set[str] = set()
        waiting = list(node.input)
        while waiting:
            name = waiting.pop(0)
            producer = self.producers.get(name)
            if producer is None or name in seen:
                continue
            seen.add(name)
            if self.matches.get(name):
                found[name] = f"{_op(producer)} {_name(producer)}"
            else:
                waiting += producer.input
        return found

    def _departure(self, node: Any, output: str) -> Departure:
        after = self._last_matching(node)
        message = f"{_op(node)} {_name(node)} {self._what(output)}"
        if after:
            message += f"; right up to {', '.join(dict.fromkeys(after.values()))}"
        if (expected := self._next(after)) is not None:
            message += f"; the program goes on with {expected.node} ({expected.op}) there"
        return Departure(
            node=_name(node),
            op=_op(node),
            output=output,
            after=list(dict.fromkeys(after.values())),
            message=message,
        )

    def _what(self, output: str) -> str:
        if self.matches[output]:
            step = self.known[self.matches[output][-1]].node
            return f"gives the result, but has the values of the program's {step}, an earlier step"
        values = self.judged[output]
        if np.isnan(values.total):
            return "gives NaN, where the program does not"
        if not np.isfinite(values.absolute):
            return "gives infinities, where the program does not"
        return "gives values that the program never computes"

    def _next(self, after: dict[str, str]) -> Fingerprint | None:
        """What the program computes next after the last matching tensors and the graph does not."""
        start = max((self.matches[name][-1] for name in after), default=-1) + 1
        computed = {place for places in self.matches.values() for place in places}
        left = (i for i in range(start, len(self.known)) if i not in computed)
        return next((self.known[i] for i in left), None)


def _run_exposed(model: "onnx.ModelProto", inputs: Tensors) -> Tensors:
    """Every floating-point tensor that the nodes of ``model`` compute, by name."""
    import onnx
    import onnxruntime as ort

    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    there = {value.name for value in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    # Without a type: ONNX Runtime infers it, for operators of its own too.
    exposed.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in there
    )
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            exposed.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise ExportError(f"ONNX Runtime cannot load the model: {error}") from error
    outputs = [value.name for value in session.get_outputs()]
    try:
        values = session.run(outputs, inputs)
    except Exception as error:
        raise RunFailed(str(error)) from error
    pairs = zip(outputs, values, strict=True)
    return {name: value for name, value in pairs if _is_floating(value)}


def _weights(model: "onnx.ModelProto") -> Tensors:
    import onnx

    return {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}


def _is_floating(value: object) -> bool:
    """Sequences and maps are no tensors."""
    return isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating)


def _name(node: Any) -> str:
    name: str = node.name or next(output for output in node.output if output)
    return name


def _op(node: Any) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)
