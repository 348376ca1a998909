"""Is it the file that is wrong, or a kernel of the runtime that is not exact?

A file is a faithful translation, and a kernel is to blame, where on every failing input

    the file is right   every node computed in double precision gives float64's output, within the
                        yardstick itself and not K times it
    a node departs      ONNX Runtime's output of it is further from double precision on the same
                        inputs than K times what rounding explains of this one node
    that explains it    with those nodes alone computed in double precision and rounded, and all
                        else run as it was judged, the verdict is PASS
    nothing else does   what was judged is what comes out of the kernels as they are; or, where an
                        optimiser may have merged them with others, it errs no more than they do
                        when their inputs are moved by a rounding

If one of these does not hold, the verdict of all cases stays as it is.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.blame.kernels import Inexact, measure, moved, suspect
from linattn_runtime_checks.blame.stages import Stages
from linattn_runtime_checks.blame.widened import NO_OPTIMIZER, CannotWiden, Nodes
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.golden_pack import Case, Reference
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import ZERO, K, compare, error_of
from linattn_runtime_checks.results.report import CaseResult
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors
from linattn_runtime_checks.runtimes.onnx_runtime import LEVELS

Judged = Sequence[tuple[Reference, Sequence[CaseResult]]]
"""The packs, and what was found of their cases."""
_FAILS = {ExitCode.PARITY, ExitCode.EXPORT}
_SECONDS = 60.0
"""Of processor time, which other work on the machine does not lengthen."""
_MOST_NODES = 3000
_DRAWS, _NO_MORE = 8, 3.0
"""A kernel's error changes from one input to the next like chance; this many show its size."""


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
    cases = _failing_cases(judged)
    try:
        trial = _Trial(Nodes(model), artifact, session, LEVELS[failing[0].mode])
        tell(f"{cases[0][1].name}: the file or a kernel")
        if not trial.is_right(*cases[0]):  # the smallest, so that a wrong file costs little
            return everything
        # A kernel that departs on one input may stay within its rounding on the next, and two such
        # nodes not: the worst case says which they are.
        pack, case = max(cases, key=lambda each: _multiple(each[1], failing))
        tell(f"{case.name}: the kernels")
        trial.search(pack, case)
        for pack, case in cases:
            tell(f"{case.name}: the file or a kernel")
            if not trial.explains(pack, case):
                return everything
    except (CannotWiden, RunFailed):
        return everything
    return [_as_inexact(r, trial.found.values()) if r in failing else r for r in everything]


def _failing_cases(judged: Judged) -> list[tuple[Reference, Case]]:
    """The smallest first."""
    found = []
    for pack, results in judged:
        failed = {result.case for result in results if result.code is Code.PARITY_EXCEEDED}
        found += [(pack, case) for case in pack.index.cases if case.name in failed]
    return sorted(found, key=lambda each: (each[1].batch * each[1].sequence, each[1].name))


def _multiple(case: Case, failing: Sequence[CaseResult]) -> float:
    return max(result.multiple or 0.0 for result in failing if result.case == case.name)


def _as_inexact(result: CaseResult, found: Iterable[Inexact]) -> CaseResult:
    worst, *rest = sorted(found, key=lambda each: each.multiple, reverse=True)
    more = f" (and {len(rest)} more nodes)" if rest else ""
    message = (
        f"{result.multiple:.3g}x the rounding of this input, relative error {result.row_error:.2e} "
        f"(worst row), for which a kernel of the runtime is to blame: {worst.text()}{more}; "
        "the file is right: computed in float64 it agrees with the module"
    )
    return result.model_copy(update={"code": Code.RUNTIME_INEXACT, "message": message})


class _Trial:
    """The nodes of one file, and those that were found to depart."""

    def __init__(self, nodes: Nodes, artifact: Artifact, session: Session, level: str) -> None:
        self.nodes, self.session, self.level = nodes, session, level
        self.outputs = [spec.name for spec in artifact.outputs]
        self.found: dict[int, Inexact] = {}
        self.until = time.process_time() + _SECONDS
        self._stages: Stages | None = None

    def is_right(self, pack: Reference, case: Case) -> bool:
        """Whether the file computes what it should, were it not for rounding.

        Of a long case that is not asked: every node of it in float64 could take all the memory.
        """
        if case.long is not None:
            return False
        outputs = self._in_double(pack.inputs(case))
        return self._right(outputs, pack.outputs(case), case, "float64", at_most=1.0)

    def explains(self, pack: Reference, case: Case) -> bool:
        """Whether the file is right on ``case``, and the nodes that depart explain the numbers."""
        if not self.is_right(pack, case):
            return False
        inputs, expected = pack.inputs(case), pack.outputs(case)
        if not self._passes(inputs, expected, case):
            self.search(pack, case)
            if not self._passes(inputs, expected, case):
                return False
        if any(each.gross for each in self.found.values()):
            return False
        return self._nothing_else(inputs, expected, case)

    def _passes(self, inputs: Tensors, expected: Tensors, case: Case) -> bool:
        """Whether all is well with the nodes that depart in double precision."""
        if not self.found:
            return False
        return self._right(self._staged().run(inputs, self._exact), expected, case)

    def _nothing_else(self, inputs: Tensors, expected: Tensors, case: Case) -> bool:
        """Whether what was judged errs as the kernels do."""
        actual = self.session.run(inputs)
        plain = self._staged().run(inputs, self._plain)
        wide = {name: value.astype(np.float64) for name, value in plain.items()}
        if self._right(actual, wide, case):
            return True
        if self.level == NO_OPTIMIZER:
            return False
        chance = np.random.default_rng(0)

        def near(index: int, values: Tensors) -> Tensors:
            drawn = {n: moved(x, chance).astype(x.dtype) for n, x in values.items()}
            return self._plain(index, drawn)

        runs = [plain, *(self._staged().run(inputs, near) for _ in range(_DRAWS))]
        for name, tensor in expected.items():
            most = ZERO
            for run in runs:
                most = most.largest(error_of(run[name], tensor))
            error = error_of(actual[name], tensor)
            if not (error.row <= _NO_MORE * most.row and error.whole <= _NO_MORE * most.whole):
                return False
        return True

    def _right(
        self,
        outputs: Tensors,
        expected: Tensors,
        case: Case,
        dtype: str = "float32",
        at_most: float = K,
    ) -> bool:
        for name, tensor in expected.items():
            if name not in outputs or outputs[name].dtype.kind != "f":
                return False
            result = compare(outputs[name], tensor, dtype, case.yardstick(name))
            lost = case.hostile and result.code is Code.INCONCLUSIVE
            if not lost and not (result.passed and (result.multiple or 0.0) <= at_most):
                return False
        return True

    def _staged(self) -> Stages:
        """The graph cut at the nodes that depart; they are opened again when more are found."""
        if self._stages is None:
            self._stages = Stages(self.nodes, list(self.found), self.level, self.outputs)
        return self._stages

    def _plain(self, index: int, values: Tensors) -> Tensors:
        return self.nodes.run(index, values, wide=False)

    def _exact(self, index: int, values: Tensors) -> Tensors:
        """In double precision and rounded; how far the kernel is from it is measured again."""
        self._in_time()
        single = self._plain(index, values)
        exact = self.nodes.run(index, values, wide=True)
        self._keep(index, measure(self.nodes, index, values, single, exact))
        return {name: exact[name].astype(value.dtype) for name, value in single.items()}

    def _in_double(self, inputs: Tensors) -> Tensors:
        values: Tensors = {}
        for index, values in self.nodes.walk(inputs):
            self._in_time()
            values.update(self.nodes.run(index, values, wide=True))
        return {name: _seen(values[name]) for name in self.outputs if name in values}

    def search(self, pack: Reference, case: Case) -> None:
        """Find the nodes that depart on ``case``; what follows one gets its exact output."""
        for index, values in self.nodes.walk(pack.inputs(case)):
            single = self._plain(index, values)
            if suspect(self.nodes.nodes[index], single):
                exact = self._exact(index, values)
                single = exact if index in self.found else single
            values.update(single)

    def _keep(self, index: int, found: Inexact | None) -> None:
        """Of all inputs, the worst."""
        known = self.found.get(index)
        if found is None:
            return
        if known is None:
            self._stages = None
        if known is None or found.gross or (found.multiple > known.multiple and not known.gross):
            self.found[index] = found

    def _in_time(self) -> None:
        if time.process_time() > self.until:
            raise CannotWiden(f"it is not settled within {_SECONDS:g} s")


def _seen(value: NDArray[Any]) -> NDArray[Any]:
    """Without what is zero in single precision: float64's own zeros begin at other numbers."""
    smallest = np.finfo(np.float32).smallest_subnormal
    return np.where(np.abs(value) < smallest, 0.0, value) if value.dtype.kind == "f" else value
