"""What is known about the mathematics of a subject: the checks hold its artifacts to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from linattn import record_of
from linattn.recurrent.chunk import CHUNK


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What every artifact of a subject must keep.

    Attributes:
        cost: growth with the sequence length; ``unknown`` promises nothing.
        causal: no token sees a later one.
        equivariant: reordering the tokens reorders the outputs and changes nothing else.
        recurrent: it holds a recurrence, which ONNX can write in several forms.
        scans: it walks over chunks of tokens, which torch.export captures in a way of its own.
        divides_rows: each output row is divided by its own size.
        block: tokens that are worked on at once, where that is a fixed number; 0 for all.
        nan_padding: padded tokens may hold NaN.
        finite: finite inputs give finite outputs, however hostile they are.
        limits: what is known not to work, to the reason.
    """

    cost: Literal["linear", "quadratic", "unknown"] = "unknown"
    causal: bool = False
    equivariant: bool = False
    recurrent: bool = False
    scans: bool = False
    divides_rows: bool = False
    block: int = 0
    nan_padding: bool = True
    finite: bool = True
    limits: Mapping[str, str] = field(default_factory=dict)


def traits_of(method: str, *, positions: bool) -> Traits:
    """Those of a method in a model; ``positions`` says that the model tells places apart."""
    record = record_of(method)
    known = record.capabilities
    return Traits(
        cost=known.cost,
        causal=known.causal,
        equivariant=known.permutation_equivariant and not positions,
        recurrent=known.recurrent,
        scans=known.causal,
        divides_rows=known.divides_rows,
        block=CHUNK if known.recurrent else 0,
        limits=record.limits,
    )
