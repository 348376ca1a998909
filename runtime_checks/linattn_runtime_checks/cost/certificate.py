"""The judgement: from the sizes of all tensors of a graph to linear, quadratic or unknown."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Literal

from pydantic import BaseModel

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.cost import axes
from linattn_runtime_checks.cost.axes import Polynomial

_LARGEST = 3
_REASONS = 3  # more of them say nothing new


class GrowingTensor(BaseModel):
    """A tensor of the graph.

    Attributes:
        name: of the tensor.
        node: name of the node that makes it; of the input itself for an input.
        op: what the node computes, such as ``MatMul`` or ``aten.matmul.default``.
        shape: numbers, and text such as ``batch``, ``4*sequence`` or ``sequence + 1``.
        degree: the power of the length with which its number of elements grows.
    """

    name: str
    node: str
    op: str
    shape: list[int | str]
    degree: int


class CostCertificate(BaseModel):
    """How the tensors of one artifact grow with the length of the sequence.

    Attributes:
        kind: ``linear`` only if every tensor was seen and none grows faster than the length.
        tensors: how many were judged: inputs, and what the nodes make.
        largest: up to three, those with the most elements at the declared maximum.
        quadratic: all that grow faster than the length.
        note: why the kind is ``unknown``, or what was taken for granted.
    """

    kind: Literal["linear", "quadratic", "unknown"]
    tensors: int
    largest: list[GrowingTensor]
    quadratic: list[GrowingTensor]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A tensor, and the node that makes it."""

    name: str
    node: str
    op: str
    shape: tuple[Polynomial, ...]

    def record(self, degree: int) -> GrowingTensor:
        """For the certificate."""
        return GrowingTensor(
            name=self.name,
            node=self.node,
            op=self.op,
            shape=[axes.text(axis) for axis in self.shape],
            degree=degree,
        )

    def elements(self, batch: int, sequence: int) -> Fraction:
        """How many it holds."""
        return prod((axes.value(a, batch, sequence) for a in self.shape), start=Fraction(1))


@dataclass(slots=True)
class Survey:
    """What was found in a graph: its tensors, and reasons why they may not tell the whole cost."""

    tensors: list[Made] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    widths: set[int] = field(default_factory=set)
    """Dimensions of the weights."""

    def add(
        self, name: str, node: str, op: str, shape: Sequence[Polynomial | None] | None, seen: object
    ) -> None:
        """Note a tensor, or a doubt where its shape, of which ``seen`` is known, is not exact."""
        known = tuple(axis for axis in shape or () if axis is not None)
        if shape is not None and len(known) == len(shape):
            self.tensors.append(Made(name=name, node=node, op=op, shape=known))
        else:
            self.doubts.append(
                f"{name} of node {node} ({op}) has sizes that are no polynomial of the length: "
                f"{seen}"
            )


def kernel_may_grow(kernel: Sequence[int] | None, artifact: Artifact) -> bool:
    """Whether a convolution may look at a part of the sequence that grows with it.

    Args:
        kernel: ``[out, in, *spatial]`` of a constant kernel; None for one that is computed.
        artifact: the declared range.
    """
    low, high = artifact.axis("sequence").declared
    return kernel is None or (low == high and max(kernel[2:], default=0) >= high)


def unknown(reason: str) -> CostCertificate:
    """Nothing could be judged."""
    return CostCertificate(kind="unknown", tensors=0, largest=[], quadratic=[], note=reason)


def judge(survey: Survey, artifact: Artifact) -> CostCertificate:
    """Judge a graph; where the length is fixed, the sizes are polynomials in the batch alone."""
    low, high = artifact.axis("sequence").declared
    tensors, doubts, remarks = survey.tensors, list(survey.doubts), list[str]()
    if artifact.entry == "step":
        degrees, doubts = [0] * len(tensors), []
        remarks.append("one token and a state of one size: nothing here can grow")
    elif low == high:
        degrees = _fixed(survey, artifact, high, doubts, remarks)
    else:
        degrees = [_degree(tensor) for tensor in tensors]
    paired = list(zip(tensors, degrees, strict=True))
    batch = artifact.axis("batch").declared[1]
    by_size = sorted(paired, key=lambda pair: pair[0].elements(batch, high), reverse=True)
    quadratic = [tensor.record(degree) for tensor, degree in paired if degree >= 2]
    if doubts[_REASONS:]:
        doubts[_REASONS:] = [f"and {len(doubts) - _REASONS} more"]
    return CostCertificate(
        kind="quadratic" if quadratic else "unknown" if doubts else "linear",
        tensors=len(tensors),
        largest=[tensor.record(degree) for tensor, degree in by_size[:_LARGEST]],
        quadratic=quadratic,
        note="; ".join([*doubts, *remarks]),
    )


def _degree(tensor: Made) -> int:
    """The degree of a product is the sum of the degrees, unless a factor is always zero."""
    return sum(axes.degree(axis) for axis in tensor.shape) if all(tensor.shape) else 0


def _fixed(
    survey: Survey, artifact: Artifact, length: int, doubts: list[str], remarks: list[str]
) -> list[int]:
    """The degrees where one length is all there is; adds to ``doubts`` and ``remarks``.

    An axis of exactly ``length``, or of a multiple that no width explains, is read as the
    sequence. That is an upper bound, so a graph in which no tensor has two such axes is linear.
    One that has two is quadratic, unless a width may have come to the same number; then nothing
    in the graph can be told apart.
    """
    widths = (survey.widths | _input_widths(artifact, length) | {artifact.block}) - {0}
    reading = _Reading(length, widths - {length})
    degrees: list[int] = []
    multiples: set[int] = set()
    collision = ""
    for tensor in survey.tensors:
        kinds = [reading.kind(axis) for axis in tensor.shape]
        degree = kinds.count("sequence")
        degrees.append(degree)
        if degree >= 2:
            if length == 1 or length in widths or artifact.block % length == 0 < artifact.block:
                collision = collision or f"{_named(tensor)} may have widths of {length}"
            elif reading.may_be_split(tensor, artifact.axis("batch").declared[0]):
                collision = collision or f"{_named(tensor)} may have heads of {length}"
        elif degree + kinds.count("unexplained") >= 2:
            doubts.append(
                f"{_named(tensor)} has axes that neither the length {length} nor a width of the "
                "weights explains; build the same as dynamic"
            )
        elif degree == 1:
            multiples |= reading.multiples(tensor)
    if collision:
        degrees = [min(degree, 1) for degree in degrees]
        doubts.insert(0, f"{collision}, which is the length too; build another length, or dynamic")
    doubts += _unrolled(survey.tensors, degrees, length)
    remarks += [
        f"{number} is read as a width, not as {number // length} x {length} tokens"
        for number in sorted(multiples)
    ]
    return degrees


def _unrolled(tensors: Sequence[Made], degrees: Sequence[int], length: int) -> list[str]:
    """A loop over the tokens that was unrolled: each step may look at all of them."""
    copies = Counter(
        (tensor.op, str([axes.text(axis) for axis in tensor.shape]))
        for tensor, degree in zip(tensors, degrees, strict=True)
        if degree
    )
    return [
        f"{op} makes {count} tensors {shape}, at least as many as there are tokens: perhaps an "
        "unrolled loop; build the same as dynamic"
        for (op, shape), count in copies.items()
        if count >= length
    ]


def _named(tensor: Made) -> str:
    shape = ", ".join(str(axes.text(axis)) for axis in tensor.shape)
    return f"{tensor.name} [{shape}] of node {tensor.node}"


def _input_widths(artifact: Artifact, length: int) -> set[int]:
    """The numbers in the declared input shapes, without one that is the length."""
    found: set[int] = set()
    for spec in artifact.inputs:
        numbers = [axis for axis in spec.shape if isinstance(axis, int)]
        if length in numbers:
            numbers.remove(length)
        found.update(numbers)
    low, high = artifact.axis("batch").declared
    return found | ({low} if low == high else set())


@dataclass(frozen=True, slots=True)
class _Reading:
    """What an axis may be, where there is one ``length`` and the other ``widths`` are known."""

    length: int
    widths: set[int]

    def kind(self, axis: Polynomial) -> str:
        """The gravest reading of the numbers of an axis: sequence, unexplained or width."""
        kinds = {self._one(number) for number in _numbers(axis)}
        return next((k for k in ("sequence", "unexplained") if k in kinds), "width")

    def _one(self, number: int) -> str:
        if number == self.length:
            return "sequence"
        # A width is often split: 768 into q, k and v, and those into heads.
        if number <= 1 or any(width % number == 0 for width in self.widths):
            return "width"
        return "sequence" if number % self.length == 0 else "unexplained"

    def multiples(self, tensor: Made) -> set[int]:
        """The widths of ``tensor`` that could have been several times the length."""
        numbers = {number for axis in tensor.shape for number in _numbers(axis)}
        return {number for number in numbers if number > self.length and not number % self.length}

    def may_be_split(self, tensor: Made, batch: int) -> bool:
        """Whether all but one axis of the length multiply to a width: heads of that size."""
        return tensor.elements(batch, self.length) / (batch * self.length) in self.widths


def _numbers(axis: Polynomial) -> list[int]:
    return [int(abs(coefficient)) for coefficient in axis.values()]
