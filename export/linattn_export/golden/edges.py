"""Inputs that drive the denominators, roots and logarithms of a module to their edge.

An epsilon keeps ``x / (norm + 1e-8)`` finite where the norm is 0. A translation that drops it is
right on every usual input. So each such operator is read off the captured program, and inputs
inside of the declared domain are looked for that bring what it is given as close to its edge as
they can: first among a pool of special ones, then downhill from the best of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from linattn.torch_internals import OpOverload
from linattn_export.golden.pool import Inputs, candidates, moves, settled
from linattn_export.inputs.cases import CasePlan
from linattn_export.inputs.families import EDGE
from linattn_export.subjects.subject import Subject
from linattn_models import InputSpec

# Operator to which of its arguments has an edge, and where that is.
_EDGES = {
    "div": (1, 0.0), "true_divide": (1, 0.0), "reciprocal": (0, 0.0), "rsqrt": (0, 0.0),
    "sqrt": (0, 0.0), "log": (0, 0.0), "log2": (0, 0.0), "log10": (0, 0.0), "log1p": (0, -1.0),
    "atanh": (0, 1.0), "pow": (0, 0.0), "xlogy": (1, 0.0),
}  # fmt: skip
_SIZES = {"batch": 2, "sequence": 9}
_MOST_CASES = 8
_STEPS = 24
_NEAR = 0.01
"""What an argument shrinks to, as a part of its usual size, to count as an edge."""

# Of a search, in runs of the program: one costs what its nodes and its weights do. Counted and not
# timed, for equal builds give equal bytes.
_BUDGET, _NODE, _WEIGHT = 1.5, 4e-5, 4e-9
_BACKWARD = 3


@dataclass
class _Best:
    """The input found for one operator."""

    distance: float
    inputs: Inputs
    usual: float = 0.0


@dataclass
class _Budget:
    """Seconds left, by estimate."""

    one: float
    left: float = field(default=_BUDGET)

    def take(self, runs: int = 1) -> bool:
        """Whether there is enough for ``runs`` more."""
        self.left -= runs * self.one
        return self.left >= 0


def edge_cases(
    subject: Subject, programs: Mapping[str, ExportedProgram]
) -> Iterator[tuple[CasePlan, Inputs]]:
    """A case for each edge that inputs of a module of one's own can reach; at most eight."""
    variant = next((v for v in subject.variants if v.name in programs), None)
    if not subject.is_own or subject.large or variant is None:
        return
    sizes = {name: variant.size(name).clamp(size) for name, size in _SIZES.items()}
    for number, inputs in enumerate(find_edges(programs[variant.name], subject, sizes), start=1):
        plan = CasePlan(
            family=EDGE,
            part=str(number),
            hostile=True,
            stored=sizes["batch"],
            sequence=sizes["sequence"],
            batches=(sizes["batch"],),
        )
        yield plan, inputs


def find_edges(program: ExportedProgram, subject: Subject, sizes: dict[str, int]) -> list[Inputs]:
    """Inputs of ``sizes``, the ones that come closest to an edge first; none twice."""
    search = _Search(program, subject.inputs)
    pool = candidates(subject, sizes)
    for inputs in pool:
        search.meet(inputs)
    for node in search.reachable():
        search.descend(node)
    found: list[Inputs] = []
    for best in sorted(search.best.values(), key=lambda best: best.distance):
        if best.distance <= _NEAR * best.usual and not any(best.inputs is one for one in found):
            found.append(best.inputs)
    return found[:_MOST_CASES]


class _Search:
    """Runs the program on inputs and keeps the best ones of each operator with an edge."""

    def __init__(self, program: ExportedProgram, specs: Sequence[InputSpec]) -> None:
        self._module = program.module()
        self._specs = specs
        self.best: dict[str, _Best] = {}
        self._first: dict[str, Tensor] = {}
        self._varies: set[str] = set()
        nodes = len(self._module.graph.nodes)
        held = sum(x.numel() for x in program.state_dict.values())
        self._budget = _Budget(one=_NODE * nodes + _WEIGHT * held)

    def meet(self, inputs: Inputs) -> None:
        """See how close ``inputs`` come to each edge."""
        if not self._budget.take():
            return
        with torch.no_grad():
            for node, argument in self._arguments(inputs).items():
                self._keep(node, argument, inputs)

    def reachable(self) -> list[str]:
        """Operators whose argument depends on the inputs, those of the end of the graph first.

        What lies deep is what a pool of special inputs does not reach.
        """
        return [node for node in reversed(self.best) if node in self._varies]

    def descend(self, node: str) -> None:
        """Go on from the best inputs of ``node`` that are not at the edge, down its distance."""
        start = self.best[node].inputs
        moving = [s for s in self._specs if moves(s) and start[s.name].numel() > 0]
        if not moving or self.best[node].distance == 0:
            return
        try:
            for _ in range(_STEPS):
                if not self._budget.take(_BACKWARD):
                    return
                here = self._step(node, start, moving)
                if here is None:
                    return
                start = here
        except RuntimeError:
            return  # an operator has no gradient; the pool has been tried

    def _step(self, node: str, inputs: Inputs, moving: Sequence[InputSpec]) -> Inputs | None:
        """Inputs where the argument nearest to its edge would be there, were it straight."""
        leaves = {s.name: inputs[s.name].clone().requires_grad_() for s in moving}
        with torch.enable_grad():
            argument = self._arguments(inputs | leaves).get(node)
            if argument is None or not argument.requires_grad:
                return None
            gap = argument.flatten()[argument.detach().abs().argmin()].double()
            slopes = torch.autograd.grad(gap, list(leaves.values()), allow_unused=True)
        size = sum(float(s.double().square().sum()) for s in slopes if s is not None)
        if not 0 < size < float("inf"):
            return None
        found = []
        for reach in (1.0, 2.0):  # a square is at its edge after twice the way
            moved = dict(inputs)
            for spec, slope in zip(moving, slopes, strict=True):
                if slope is not None:
                    way = (
                        inputs[spec.name].double()
                        - reach * float(gap.detach()) / size * slope.double()
                    )
                    dtype = inputs[spec.name].dtype
                    moved[spec.name] = settled(way, spec, dtype)
            with torch.no_grad():
                arguments = self._arguments(moved)
            for other, argument in arguments.items():
                self._keep(other, argument, moved)
            found.append((_distance(arguments.get(node)), moved))
        distance, nearest = min(found, key=lambda pair: pair[0])
        return nearest if distance < float("inf") else None

    def _keep(self, node: str, argument: Tensor, inputs: Inputs) -> None:
        first = self._first.setdefault(node, argument)
        if not torch.equal(first, argument):
            self._varies.add(node)
        distance = _distance(argument)
        known = self.best.get(node)
        if known is None:
            usual = float(argument.abs().max()) if argument.numel() else 0.0
            self.best[node] = _Best(distance=distance, inputs=inputs, usual=usual)
        elif distance < known.distance:
            known.distance, known.inputs = distance, inputs

    def _arguments(self, inputs: Inputs) -> dict[str, Tensor]:
        """What each operator with an edge is given, less the edge; nothing where a run fails."""
        recorder = _Recorder(self._module)
        try:
            recorder.run(*(x.clone() for x in inputs.values()))  # it may write into them
        except Exception:  # the module may refuse such values; others are tried
            return {}
        return recorder.found


def _distance(argument: Tensor | None) -> float:
    if argument is None or argument.numel() == 0 or not bool(argument.isfinite().all()):
        return float("inf")
    return float(argument.detach().abs().min())


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps what the operators with an edge are given, less the edge."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        known = edge_of(n)
        if known is not None:
            place, edge = known
            argument = self.fetch_args_kwargs_from_env(n)[0][place]
            if isinstance(argument, Tensor) and argument.is_floating_point():
                self.found[n.name] = argument.abs() - 1.0 if edge == 1.0 else argument - edge
        return super().run_node(n)


def edge_of(node: fx.Node) -> tuple[int, float] | None:
    """Which argument of the operator has an edge, and where; None for an operator without one."""
    name = _name(node)
    known = _EDGES.get(name)
    if known is None or len(node.args) <= known[0] or not isinstance(node.args[known[0]], fx.Node):
        return None
    if node.kwargs.get("rounding_mode") is not None:
        return None  # it jumps
    if name == "pow" and not _has_edge(node.args[1]):
        return None
    return known


def _name(node: fx.Node) -> str:
    """Of an operator of PyTorch, whichever of its forms is called."""
    if not isinstance(node.target, OpOverload):
        return ""
    return str(node.target.overloadpacket.__name__).rstrip("_")


def _has_edge(exponent: Any) -> bool:
    """Whether a power has an edge at 0: its exponent is negative or broken, or not known."""
    return isinstance(exponent, fx.Node) or exponent < 0 or float(exponent) % 1 != 0
