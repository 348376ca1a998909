"""A graph run in pieces: some of its nodes by other means, what lies between them as it is.

What lies between is opened as ONNX Runtime opens the whole: its optimiser on or off, its weights
laid out as it likes.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linattn_runtime_checks.blame.widened import Nodes, open_on_cpu
from linattn_runtime_checks.runtimes.base import RunFailed, Tensors

if TYPE_CHECKING:
    import onnx

Kernel = Callable[[int, Tensors], Tensors]
"""The outputs of a node by name, from its index and from its inputs by name."""


class Stages:
    """``nodes`` in pieces, cut at the nodes ``at``."""

    def __init__(self, nodes: Nodes, at: Sequence[int], level: str, outputs: Sequence[str]) -> None:
        """Open every piece.

        Args:
            nodes: of the graph.
            at: indices of the nodes that are run by other means.
            level: of ONNX Runtime's optimiser, as it names it.
            outputs: of the graph.

        Raises:
            RunFailed: ONNX Runtime cannot open one.
        """
        self._nodes, self._at = nodes, sorted(at)
        self._made = {name for i in self._at for name in nodes.nodes[i].output}
        self._weights = nodes.weights()
        self._before = {i: self._piece(nodes.uses(i), level) for i in self._at}
        self._last = self._piece(outputs, level)
        self._outputs = outputs

    def run(self, inputs: Tensors, kernel: Kernel) -> Tensors:
        """The outputs by name.

        Args:
            inputs: of the graph.
            kernel: what runs the nodes at the cuts.

        Raises:
            RunFailed: ONNX Runtime cannot.
        """
        known = dict(inputs)
        for index in self._at:
            found = self._weights | known | _run(self._before[index], known)
            known |= kernel(index, {name: found[name] for name in self._nodes.uses(index)})
        found = known | _run(self._last, known)
        found = self._weights | found
        return {name: found[name] for name in self._outputs if name in found}

    def _piece(self, wanted: Sequence[str], level: str) -> Any | None:
        """What computes ``wanted``; None where nothing is to be computed."""
        import onnx

        nodes, needed, kept = self._nodes.nodes, set(wanted) - self._made, []
        for index in reversed(range(len(nodes))):
            if index not in self._at and needed & set(nodes[index].output):
                kept.append(index)
                needed |= set(self._nodes.uses(index))
        if not kept:
            return None
        made = {name for index in kept for name in nodes[index].output}
        model = onnx.ModelProto()
        model.CopyFrom(self._nodes.model)
        graph = model.graph
        for part in (graph.node, graph.output, graph.initializer):
            del part[:]
        graph.node.extend(nodes[index] for index in reversed(kept))
        graph.output.extend(_value(self._nodes.model, n) for n in wanted if n in made)
        whole = self._nodes.model.graph
        graph.initializer.extend(item for item in whole.initializer if item.name in needed)
        given = [item for item in whole.input if item.name in needed]
        del graph.input[:]
        graph.input.extend(given)
        for name in sorted(needed & self._made):
            graph.input.append(onnx.helper.make_tensor_value_info(name, _FLOAT, None))
        try:
            return open_on_cpu(model, level)
        except Exception as error:
            raise RunFailed(str(error)) from error


_FLOAT = 1  # onnx.TensorProto.FLOAT


def _value(model: "onnx.ModelProto", name: str) -> Any:
    """The output ``name`` as the graph declares it; a tensor inside comes without a type."""
    import onnx

    declared = {item.name: item for item in model.graph.output}
    return declared.get(name, onnx.ValueInfoProto(name=name))


def _run(session: Any | None, known: Tensors) -> Tensors:
    if session is None:
        return {}
    names = [item.name for item in session.get_outputs()]
    feeds = {item.name: known[item.name] for item in session.get_inputs()}
    try:
        values = session.run(names, feeds)
    except Exception as error:
        raise RunFailed(str(error)) from error
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}
