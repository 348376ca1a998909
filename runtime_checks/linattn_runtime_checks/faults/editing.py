"""A few edits of an ONNX graph, on which the planted faults are built."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Graph:
    """One model, to be changed in place; nodes stay in topological order."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.nodes = model.graph.node
        self._made = 0

    def weights(self) -> dict[str, NDArray[Any]]:
        """Every initializer by name."""
        from onnx import numpy_helper

        return {item.name: numpy_helper.to_array(item) for item in self.model.graph.initializer}

    def set_weight(self, name: str, value: NDArray[Any]) -> None:
        """Replace an initializer."""
        from onnx import numpy_helper

        item = next(item for item in self.model.graph.initializer if item.name == name)
        item.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), name))

    def constant(self, value: NDArray[Any]) -> str:
        """A new initializer; its name."""
        from onnx import numpy_helper

        name = self._name("constant")
        self.model.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def of_type(self, *types: str) -> list[Any]:
        """The nodes of these operators, in order."""
        return [node for node in self.nodes if node.op_type in types]

    def maker(self, name: str) -> Any | None:
        """The node that makes the tensor ``name``; None for inputs and initializers."""
        return next((node for node in self.nodes if name in node.output), None)

    def scalar(self, name: str) -> float | None:
        """The number that the initializer ``name`` holds, None if it is not a single float."""
        value = self.weights().get(name)
        if value is None or value.size != 1 or value.dtype.kind != "f":
            return None
        return float(value.reshape(()))

    def comes_from(self, name: str, source: str) -> bool:
        """Whether the tensor ``name`` depends on the tensor ``source``."""
        return name == source or any(source in node.input for node in self._behind(name))

    def comes_from_a(self, name: str, *types: str) -> bool:
        """Whether the tensor ``name`` depends on a node of one of these operators."""
        return any(node.op_type in types for node in self._behind(name))

    def _behind(self, name: str) -> Iterator[Any]:
        """Every node that the tensor ``name`` depends on."""
        seen, waiting = set(), [name]
        while waiting:
            current = waiting.pop()
            node = self.maker(current)
            if node is not None and current not in seen:
                seen.add(current)
                yield node
                waiting.extend(node.input)

    def bypass(self, node: Any, source: str) -> None:
        """Let every user of the node's output read ``source`` instead."""
        from onnx import helper

        index = list(self.nodes).index(node)
        output = node.output[0]
        self.nodes.remove(node)
        self.nodes.insert(index, helper.make_node("Identity", [source], [output]))

    def insert(self, index: int, op: str, inputs: Iterable[str], **attributes: Any) -> str:
        """A new node at ``index``; the name of its output."""
        from onnx import helper

        name = self._name(op.lower())
        node = helper.make_node(op, list(inputs), [name], name=name, **attributes)
        self.nodes.insert(index, node)
        return name

    def before_users(self, name: str, make: Callable[["Graph", int, str], str]) -> None:
        """Let the users of an input read what ``make(graph, index, name)`` makes of it.

        ``make`` inserts its nodes at ``index``, each new one after the one before.
        """
        users = [node for node in self.nodes if name in node.input]
        changed = make(self, 0, name)
        for node in users:
            for place, used in enumerate(node.input):
                if used == name:
                    node.input[place] = changed

    def after_output(self, make: Callable[["Graph", str], str]) -> None:
        """Let the first output be what ``make(graph, name)`` makes of it, appending nodes."""
        from onnx import helper

        output = self.model.graph.output[0].name
        inner = self._name("inner")
        for node in self.nodes:
            for place, made in enumerate(node.output):
                if made == output:
                    node.output[place] = inner
            for place, used in enumerate(node.input):
                if used == output:
                    node.input[place] = inner
        self.nodes.append(helper.make_node("Identity", [make(self, inner)], [output]))

    def append(self, op: str, inputs: Iterable[str], **attributes: Any) -> str:
        """A new last node; the name of its output."""
        return self.insert(len(self.nodes), op, inputs, **attributes)

    def _name(self, stem: str) -> str:
        self._made += 1
        return f"planted_{stem}_{self._made}"
