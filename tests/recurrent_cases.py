"""Inputs of the recurrence, for every rule and both kinds of decay."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

B, H, D, E = 2, 4, 6, 5
SCALE = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``decay``: axes of the log decay, "" for none."""

    name: str
    decay: str = ""
    delta: bool = False


RULES = (
    Rule(name="linear"),
    Rule(name="gated", decay="head"),
    Rule(name="gated by channel", decay="channel"),
    Rule(name="delta", delta=True),
    Rule(name="gated delta", decay="head", delta=True),
    Rule(name="gated delta by channel", decay="channel", delta=True),
)

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor | None
    beta: Tensor | None
    state: Tensor

    def to(self, dtype: torch.dtype) -> "Inputs":
        cast: dict[str, Any] = {
            name: None if tensor is None else tensor.to(dtype)
            for name, tensor in self.by_name().items()
        }
        return Inputs(**cast)

    def by_name(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def tokens(self, start: int, end: int, state: Tensor | None = None) -> "Inputs":
        """The tokens from ``start`` up to ``end``, from another state."""
        cut: dict[str, Any] = {
            name: None if tensor is None or name == "state" else tensor[:, start:end]
            for name, tensor in self.by_name().items()
        }
        return Inputs(**cut | {"state": self.state if state is None else state})

    def without_state(self) -> dict[str, Any]:
        return {**self.by_name(), "state": None}

    def changed(self, **tensors: Any) -> "Inputs":
        return replace(self, **tensors)


def draw(
    rule: Rule, length: int, *, heads: tuple[int, int, int] = (H, H, H), strength: float = 1.0
) -> Inputs:
    """Float64; ``strength`` multiplies the log decays, which are those of a logistic gate."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    most = max(heads)
    gates = {"": None, "head": normal(B, length, most), "channel": normal(B, length, most, D)}
    gate = gates[rule.decay]
    return Inputs(
        query=normal(B, length, heads[0], D),
        key=torch.nn.functional.normalize(normal(B, length, heads[1], D), dim=-1),
        value=normal(B, length, heads[2], E),
        decay=None if gate is None else strength * torch.nn.functional.logsigmoid(3 * gate),
        beta=torch.sigmoid(normal(B, length, most)) if rule.delta else None,
        state=normal(B, most, D, E),
    )


def error(actual: Tensor, expected: Tensor) -> float:
    """Relative error of the whole tensor."""
    return float((actual.double() - expected).norm() / expected.norm())
