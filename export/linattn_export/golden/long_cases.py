"""Cases of very many tokens: what of them is drawn, run and stored.

At 131,072 tokens of width 256 an input takes 128 MiB and its float64 output twice that. So such a
case is made of fewer tokens, each at several places in random order, and the golden pack holds
those, their order, and the float64 output at some of the places. The last token is at the last
place only. The places are both ends, those where a block of a power of two ends or starts, and
random ones in between. All outputs of the run are still checked to be finite.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from linattn_export.golden.drawn import draw_case
from linattn_export.inputs.cases import CasePlan
from linattn_export.inputs.families import FAMILIES, SAMPLES
from linattn_export.subjects.subject import Subject
from linattn_models import InputSpec
from linattn_runtime_checks.contract.golden_pack import Long

WHOLE_TOKENS = 16384
"""Longer cases are stored in part: this many tokens, and at most as many rows of output."""
_ENDS, _BLOCK = 256, 128

Inputs = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What is run on the inputs of a case: float64, eager, and float64 moved by rounding."""

    reference: nn.Module
    eager: Callable[[Inputs], Any]
    perturbed: list[nn.Module]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """A long case: ``index`` as in the pack, and the tensors that its inputs are made of."""

    index: Long
    stored: Inputs
    tokens: Tensor
    rows: Tensor

    def inputs(self) -> Inputs:
        """The inputs of the run."""
        axes = self.index.inputs
        return {
            name: x.index_select(axes[name], self.tokens) if name in axes else x
            for name, x in self.stored.items()
        }

    def of_runs(self, runs: Runs, names: list[str]) -> Runs:
        """The same with only those rows of the outputs, called ``names``, that are stored."""
        return Runs(
            reference=_SomeRows(runs.reference, self, names),
            eager=lambda inputs: self.kept(runs.eager(inputs), names),
            perturbed=[_SomeRows(module, self, names) for module in runs.perturbed],
        )

    def kept(self, outputs: Any, names: list[str]) -> tuple[Tensor, ...]:
        """The rows of ``outputs`` that are stored."""
        found = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
        axes = self.index.outputs
        return tuple(
            x.index_select(axes[name], self.rows) if name in axes else x
            for name, x in zip(names, found, strict=True)
        )

    def tensors(self, name: str) -> dict[str, Any]:
        """What the pack holds besides inputs and outputs of the case called ``name``."""
        kept = {"tokens": self.tokens, "rows": self.rows}
        return {f"{name}/{part}": x.to(torch.int32).numpy() for part, x in kept.items()}


class _SomeRows(nn.Module):
    def __init__(self, module: nn.Module, case: Shortened, names: list[str]) -> None:
        super().__init__()
        self.module = module
        self._case, self._names = case, names

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._case.kept(self.module(*inputs), self._names)


def shortened(subject: Subject, plan: CasePlan) -> Shortened | None:
    """The case of ``plan`` in part; None where it is stored whole.

    Masks of a family are about places, and real inputs are what they are: those stay whole, and so
    do inputs whose numbers belong to several tokens at once.
    """
    family = FAMILIES[plan.family]
    outputs = {name: _axis(axes) for name, axes in subject.outputs.items()}
    inputs = {spec.name: _axis(spec.axes) for spec in subject.inputs}
    along = {name: axis for name, axis in inputs.items() if axis is not None}
    if plan.sequence <= WHOLE_TOKENS or family.mask or plan.family == SAMPLES or not along:
        return None
    if any(_several(spec) for spec in subject.inputs):
        return None
    few = plan.with_tokens(WHOLE_TOKENS)
    chance = torch.Generator().manual_seed(zlib.crc32(plan.name.encode()))
    tokens = torch.randint(WHOLE_TOKENS - 1, (plan.sequence,), generator=chance)
    tokens[0], tokens[-1] = 0, WHOLE_TOKENS - 1
    return Shortened(
        index=Long(
            inputs=along,
            outputs={name: axis for name, axis in outputs.items() if axis is not None},
        ),
        stored=draw_case(subject, few),
        tokens=tokens,
        rows=_rows(plan.sequence, chance),
    )


def _axis(axes: tuple[str | int, ...]) -> int | None:
    return axes.index("sequence") if "sequence" in axes else None


def _several(spec: InputSpec) -> bool:
    return spec.axes.count("sequence") > 1


def _rows(length: int, chance: torch.Generator) -> Tensor:
    """Places whose output is stored, in ascending order."""
    places = torch.arange(length)
    wanted = (places < _ENDS) | (places >= length - _ENDS)
    block = max(_BLOCK, 2 ** (length // 4096).bit_length())  # at most a few thousand edges
    wanted |= (places + 1) % block <= 1
    spare = max(WHOLE_TOKENS - int(wanted.sum()), 0)
    others = torch.randperm(length, generator=chance)[:spare]
    wanted[others] = True
    return places[wanted]
