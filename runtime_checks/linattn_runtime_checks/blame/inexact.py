"""Is it the file that is wrong, or a kernel of the runtime that is not exact?

A file is a faithful translation, and a kernel is to blame, where on every failing input

    the file is right   every node computed in double precision gives float64's output, within the
                        yardstick itself and not K times it
    a node departs      ONNX Runtime's output of it is further from double precision on the same
                        inputs than K times what rounding explains of this one node
    that explains it    with those nodes alone computed in double precision and rounded, the rest
                        left to ONNX Runtime, the verdict is PASS

and what the judged session gave is what ONNX Runtime gives node by node, so that no optimiser is
excused. Otherwise the verdict stays as it is. No node is named whose sums may lose to their order,
nor one that has a body: what is inside it is written in the file.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.blame.widened import CannotWiden, Nodes
from linattn_runtime_checks.codes import CODES, Code
from linattn_runtime_checks.errors import ExitCode
from linattn_runtime_checks.manifest import Artifact
from linattn_runtime_checks.reference import Case, Reference
from linattn_runtime_checks.report.model import CaseResult
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors
from linattn_runtime_checks.verdict import SENSITIVITY_FACTOR, Error, K, compare, error_of

Judged = Sequence[tuple[Reference, Sequence[CaseResult]]]
"""The packs, and what was found of their cases."""
UNIT = 2.0**-24
"""Half a unit in the last place of 1.0 in single precision: what one rounding costs."""
_FAILS = {ExitCode.PARITY, ExitCode.EXPORT}
_MOVES = 3
_GROSS = 0.01
_OF_RANGE = 4 * UNIT
_SECONDS = 60.0  # of processor time, which other work on the machine does not lengthen
_MOST_NODES = 3000
_SUMS = {
    "MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "ReduceSum", "ReduceMean", "ReduceL1",
    "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "CumSum", "Sum",
    "Mean", "AveragePool", "GlobalAveragePool", "RNN", "GRU", "LSTM",
}  # fmt: skip
_AROUND_ONE = {
    "Sigmoid", "Tanh", "Erf", "Elu", "Selu", "Celu", "Gelu", "Mish", "Softplus", "HardSigmoid",
}  # fmt: skip
"""Made of 1 / (1 + exp(-x)), exp(x) - 1 and the like: of a number of size 1, and of x times it.

Sigmoid(-15) is 3e-7. A kernel that is right within a rounding of the 1 may be far off relative to
that, and still have the accuracy of single precision over the range of the function.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inexact:
    """A node whose kernel departs: by how much from double precision, and from its own rounding."""

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


def excused(
    path: Path,
    artifact: Artifact,
    judged: Judged,
    session: Session,
    tell: Callable[[str], None],
) -> list[CaseResult]:
    """All results; the failing ones as RUNTIME_INEXACT where the kernels of the runtime explain it.

    Args:
        path: of an ONNX file.
        artifact: its manifest entry.
        judged: all results of one mode of ONNX Runtime on the CPU, pack by pack.
        session: that gave them.
        tell: told of every step before it is taken.
    """
    everything = [result for _, results in judged for result in results]
    failing = [result for result in everything if result.code is Code.PARITY_EXCEEDED]
    others = {result.code for result in everything if CODES[result.code].exit_code in _FAILS}
    if not failing or others != {Code.PARITY_EXCEEDED}:
        return everything
    if artifact.dtype != "float32" or artifact.side_files:
        return everything
    try:
        import onnx
    except ImportError:
        return everything
    model = onnx.load(path)
    if len(model.graph.node) > _MOST_NODES:
        return everything
    names = {id(pack): {r.case for r in results if r in failing} for pack, results in judged}
    cases = [(pack, case) for pack, _ in judged for case in pack.index.cases
             if case.name in names[id(pack)]]  # fmt: skip
    cases.sort(key=lambda each: (each[1].batch * each[1].sequence, each[1].name))
    trial = _Trial(Nodes(model), artifact, session)
    try:
        for pack, case in cases:
            tell(f"{case.name}: the file or a kernel")
            if not trial.explains(pack, case):
                return everything
    except (CannotWiden, RunFailed):
        return everything
    return [_as_inexact(r, trial) if r in failing else r for r in everything]


def _as_inexact(result: CaseResult, trial: "_Trial") -> CaseResult:
    worst = sorted(trial.found.values(), key=lambda each: each.multiple, reverse=True)
    more = f" (and {len(worst) - 1} more nodes)" if len(worst) > 1 else ""
    message = (
        f"{result.multiple:.3g}x the rounding of this input, relative error {result.row_error:.2e} "
        f"(worst row), for which a kernel of the runtime is to blame: {worst[0].text()}{more}; "
        "the file is right: computed in float64 it agrees with the module"
    )
    return result.model_copy(update={"code": Code.RUNTIME_INEXACT, "message": message})


class _Trial:
    """The nodes of one file, and those that were found to depart."""

    def __init__(self, nodes: Nodes, artifact: Artifact, session: Session) -> None:
        self.nodes, self.artifact, self.session = nodes, artifact, session
        self.found: dict[int, Inexact] = {}
        self.until = time.process_time() + _SECONDS

    def explains(self, pack: Reference, case: Case) -> bool:
        """Whether the file is right on ``case``, and the nodes that depart explain the numbers."""
        inputs, expected = pack.inputs(case), pack.outputs(case)
        if not self._right(self._in_double(inputs), expected, case, "float64", at_most=1.0):
            return False
        plain = self._mixed(inputs, set())
        wide = {name: value.astype(np.float64) for name, value in plain.items()}
        if not self._right(self.session.run(inputs), wide, case, self.artifact.dtype):
            return False
        if not self._passes(inputs, expected, case):
            self._search(inputs)
            if not self._passes(inputs, expected, case):
                return False
        return not any(each.gross for each in self.found.values())

    def _passes(self, inputs: Tensors, expected: Tensors, case: Case) -> bool:
        """Whether all is well with the nodes that depart in double precision."""
        if not self.found:
            return False
        outputs = self._mixed(inputs, set(self.found))
        return self._right(outputs, expected, case, self.artifact.dtype)

    def _right(
        self, outputs: Tensors, expected: Tensors, case: Case, dtype: str, at_most: float = K
    ) -> bool:
        for name, tensor in expected.items():
            if name not in outputs or outputs[name].dtype.kind != "f":
                return False
            result = compare(outputs[name], tensor, dtype, case.yardstick(name))
            lost = case.hostile and result.code is Code.INCONCLUSIVE
            if not lost and not (result.passed and (result.multiple or 0.0) <= at_most):
                return False
        return True

    def _in_double(self, inputs: Tensors) -> Tensors:
        values: Tensors = {}
        for index, values in self._walk(inputs):
            values.update(self.nodes.run(index, values, wide=True))
        return self._outputs(values)

    def _mixed(self, inputs: Tensors, wide: set[int]) -> Tensors:
        """The outputs with the nodes ``wide`` in double precision; they are measured again."""
        values: Tensors = {}
        for index, values in self._walk(inputs):
            single = self.nodes.run(index, values, wide=False)
            if index in wide:
                exact = self.nodes.run(index, values, wide=True)
                self._keep(index, self._inexact(index, values, single, exact))
                values.update({n: exact[n].astype(value.dtype) for n, value in single.items()})
            else:
                values.update(single)
        return self._outputs(values)

    def _search(self, inputs: Tensors) -> None:
        """Find the nodes that depart on these inputs; what follows one gets its exact output."""
        for index, values in self._walk(inputs):
            single = self.nodes.run(index, values, wide=False)
            if self._suspect(index, single):
                exact = self.nodes.run(index, values, wide=True)
                found = self._inexact(index, values, single, exact)
                if found is not None:
                    self._keep(index, found)
                    single = {n: exact[n].astype(value.dtype) for n, value in single.items()}
            values.update(single)

    def _walk(self, inputs: Tensors) -> Iterable[tuple[int, Tensors]]:
        for step in self.nodes.walk(inputs):
            if time.process_time() > self.until:
                raise CannotWiden(f"it is not settled within {_SECONDS:g} s")
            yield step

    def _outputs(self, values: Tensors) -> Tensors:
        names = [spec.name for spec in self.artifact.outputs]
        return {name: values[name] for name in names if name in values}

    def _suspect(self, index: int, outputs: Tensors) -> bool:
        node = self.nodes.nodes[index]
        body = any(a.HasField("g") or a.graphs for a in node.attribute)
        floating = any(value.dtype == np.float32 for value in outputs.values())
        return floating and not body and not node.domain and node.op_type not in _SUMS

    def _keep(self, index: int, found: Inexact | None) -> None:
        """Of all inputs, the worst."""
        known = self.found.get(index)
        if found is not None and (known is None or found.multiple > known.multiple or found.gross):
            self.found[index] = found

    def _inexact(
        self, index: int, values: Tensors, single: Tensors, exact: Tensors
    ) -> Inexact | None:
        """How far the node departs; None where rounding explains it."""
        node = self.nodes.nodes[index]
        allowed: dict[str, Error] = {}
        worst: Inexact | None = None
        for name, got in single.items():
            if got.dtype != np.float32 or got.shape != exact[name].shape:
                continue
            error = error_of(got, exact[name])
            if not _beyond(error, Error(row=UNIT, whole=UNIT)):
                continue
            allowed = allowed or self._rounding(index, values, exact)
            if not _beyond(error, allowed[name]):
                continue
            multiple = max(error.row / allowed[name].row, error.whole / allowed[name].whole)
            if worst is None or multiple > worst.multiple:
                worst = Inexact(
                    node=node.name or name,
                    op=node.op_type,
                    error=error,
                    multiple=multiple,
                    gross=_gross(node, values, got, exact[name], error),
                )
        return worst

    def _rounding(self, index: int, values: Tensors, exact: Tensors) -> dict[str, Error]:
        """What rounding explains of each output: as in the verdict, for this one node."""
        chance = np.random.default_rng(0)
        found = {}
        for name, value in exact.items():
            own = error_of(value.astype(np.float32), value)  # below 1e-38 it keeps few digits
            found[name] = own.largest(Error(row=UNIT, whole=UNIT))
        used = [name for name in self.nodes.nodes[index].input if name]
        for _ in range(_MOVES):
            moved = values | {name: _moved(values[name], chance) for name in used}
            for name, value in self.nodes.run(index, moved, wide=True).items():
                if value.shape == exact[name].shape and name in found:
                    step = error_of(value, exact[name]).times(SENSITIVITY_FACTOR)
                    found[name] = found[name].largest(step)
        return found


def _moved(value: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Every element moved by up to one rounding unit; what is no floating number stays."""
    if value.dtype != np.float32:
        return value
    wide = value.astype(np.float64)
    return np.asarray(wide * (1 + UNIT * chance.uniform(-1, 1, value.shape)))


def _beyond(error: Error, allowed: Error) -> bool:
    return error.row > K * allowed.row or error.whole > K * allowed.whole


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
