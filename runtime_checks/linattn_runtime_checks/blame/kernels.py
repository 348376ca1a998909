"""How exact one kernel of the runtime is: a node against itself in double precision."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.blame.widened import Nodes
from linattn_runtime_checks.contract.verdict import SENSITIVITY_FACTOR, Error, K, error_of, move
from linattn_runtime_checks.runtimes.base import Tensors

UNIT = 2.0**-24
"""What one rounding to single precision costs, relative to the number."""
_MOVES = 3
_GROSS = 0.01
_OF_RANGE = 4 * UNIT
_SUMS = {
    "MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "ReduceSum", "ReduceMean", "ReduceL1",
    "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "CumSum", "Sum",
    "Mean", "AveragePool", "GlobalAveragePool", "RNN", "GRU", "LSTM",
}  # fmt: skip
"""What may lose digits to the order of its sums, and is no worse a kernel for that."""
_AROUND_ONE = {
    "Sigmoid", "Tanh", "Erf", "Elu", "Selu", "Celu", "Gelu", "Mish", "Softplus", "HardSigmoid",
}  # fmt: skip
"""Made of 1 / (1 + exp(-x)), exp(x) - 1 and the like: of a number of size 1, and of x times it.

Sigmoid(-15) is 3e-7. A kernel that is right within a rounding of the 1 may be far off relative to
that, and still have the accuracy of single precision over the range of the function.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inexact:
    """A node whose kernel departs: by how much from double precision, and from its own rounding.

    ``gross`` says that it is wrong rather than not exact.
    """

    node: str
    op: str
    error: Error
    multiple: float
    gross: bool

    def text(self) -> str:
        """As a part of a sentence."""
        return (
            f"its {self.op} {self.node} is {self.error.row:.1e} (worst row) from float64 on the "
            f"same input, {self.multiple:.3g}x what rounding explains of it"
        )


def suspect(node: Any, outputs: Tensors) -> bool:
    """Whether a node can be to blame: no sum, nothing with a body, which is written in the file."""
    body = any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
    floating = any(value.dtype == np.float32 for value in outputs.values())
    return floating and not body and not node.domain and node.op_type not in _SUMS


def measure(
    nodes: Nodes, index: int, values: Tensors, single: Tensors, exact: Tensors
) -> Inexact | None:
    """How far a node departs; None where rounding explains it.

    Args:
        nodes: of the graph.
        index: of the node.
        values: its inputs, and perhaps other tensors.
        single: its outputs, as the runtime computes them.
        exact: the same in double precision.
    """
    node, allowed = nodes.nodes[index], dict[str, Error]()
    worst: Inexact | None = None
    for name, got in single.items():
        if got.dtype != np.float32 or got.shape != exact[name].shape:
            continue
        error = error_of(got, exact[name])
        if error.multiple_of(Error(row=UNIT, whole=UNIT)) <= K:
            continue
        allowed = allowed or _rounding(nodes, index, values, exact)
        multiple = error.multiple_of(allowed[name])
        if multiple <= K:
            continue
        if worst is None or multiple > worst.multiple:
            worst = Inexact(
                node=node.name or name,
                op=node.op_type,
                error=error,
                multiple=multiple,
                gross=_gross(node, values, got, exact[name], error),
            )
    return worst


def moved(value: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Every element moved by up to one rounding unit; what is not in single precision stays."""
    if value.dtype != np.float32:
        return value
    limits, wide = np.finfo(np.float32), np.atleast_1d(value.astype(np.float64))
    move(wide, chance.random(wide.shape), float(limits.eps), float(limits.smallest_normal))
    return wide.reshape(value.shape)


def _rounding(nodes: Nodes, index: int, values: Tensors, exact: Tensors) -> dict[str, Error]:
    """What rounding explains of each output: as in the verdict, for this one node."""
    chance = np.random.default_rng(0)
    found = {}
    for name, value in exact.items():
        own = error_of(value.astype(np.float32), value)  # below 1e-38 it keeps few digits
        found[name] = own.largest(Error(row=UNIT, whole=UNIT))
    for _ in range(_MOVES):
        near = {name: moved(values[name], chance) for name in nodes.uses(index)}
        for name, value in nodes.run(index, near, wide=True).items():
            if value.shape == exact[name].shape:
                step = error_of(value, exact[name]).times(SENSITIVITY_FACTOR)
                found[name] = found[name].largest(step)
    return found


def _gross(
    node: Any, values: Tensors, got: NDArray[Any], exact: NDArray[np.float64], error: Error
) -> bool:
    """Whether the kernel is wrong rather than not exact.

    That is one hundredth of its whole output, where this is not below the rounding of the range
    that the function has.
    """
    if error.whole <= _GROSS:
        return False
    if node.op_type not in _AROUND_ONE:
        return True
    largest = max(1.0, float(np.abs(values[node.input[0]]).max(initial=0.0)))
    return not float(np.abs(got - exact).max()) <= _OF_RANGE * largest
