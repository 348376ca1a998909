"""The families of inputs that artifacts are judged on: one line each.

``normal`` is what the sweep over lengths uses. The hostile families are made to be hard; where
PyTorch itself loses too much on one, the report says so instead of PASS. The mask families are for
models that take a mask.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from linattn_models import InputSpec

NEGATIVE_FEATURES = "negative-features"
NEAR_ZERO_DENOMINATOR = "near-zero-denominator"
SAMPLES = "samples"
EDGE = "edge"
_MADE_ELSEWHERE = ("normal", "other-length", SAMPLES, EDGE)
_HUGE = 1e4
_SUBNORMAL = 0.01  # of the smallest normal number
_JITTER = 0.01

Directions = Mapping[str, Mapping[str, Tensor]]
Change = Callable[[Tensor, InputSpec, torch.dtype], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family.

    ``change(values, spec, dtype)`` turns N(0, 1) values, float64 with the axes of ``spec``, into
    those of the family. ``inputs`` names the inputs that it needs and changes; empty means all.
    A family of masks says at which places of padding (InputSpec.padding) it is tried, and whether
    some sequence has no real token.
    ``sampled`` says that it makes sense for inputs that are real data. ``every_variant`` puts it
    at one length of each variant, not of the dynamic one only.
    """

    name: str
    title: str
    change: Change
    hostile: bool = True
    mask: bool = False
    inputs: tuple[str, ...] = ()
    sampled: bool = False
    directed: bool = False
    """Follows a direction that the model gives (Model.directions)."""
    every_variant: bool = False
    padding: tuple[str, ...] = ("any", "right", "left")
    empty_rows: bool = False


def _same(values: Tensor, spec: InputSpec, dtype: torch.dtype) -> Tensor:
    return values


def _scaled(factor: float) -> Change:
    return lambda values, spec, dtype: values * factor


def _constant_rows(values: Tensor, spec: InputSpec, dtype: torch.dtype) -> Tensor:
    for axis in _token_axes(spec):
        values = values.narrow(axis, 0, 1).expand_as(values).clone()
    return values


def _some_tokens(values: Tensor, spec: InputSpec, start: int, step: int, factor: float) -> Tensor:
    """``values``, of every ``step``-th token from ``start`` on times ``factor``."""
    chosen = torch.zeros(values.shape, dtype=torch.bool)
    for axis in _token_axes(spec):
        along = torch.zeros(values.shape[axis], dtype=torch.bool)
        along[start::step] = True
        chosen |= along.reshape([-1 if at == axis else 1 for at in range(values.dim())])
    return torch.where(chosen, values * factor, values)


def _every_second(values: Tensor, spec: InputSpec, factor: float) -> Tensor:
    return _some_tokens(values, spec, 0, 2, factor)


def _token_axes(spec: InputSpec) -> list[int]:
    """More than one where each number belongs to several tokens, as in a bias of attention."""
    return [place for place, axis in enumerate(spec.axes) if axis == "sequence"]


def _zero_rows(values: Tensor, spec: InputSpec, dtype: torch.dtype) -> Tensor:
    return _every_second(values, spec, 0.0)


def _denormals(values: Tensor, spec: InputSpec, dtype: torch.dtype) -> Tensor:
    return _every_second(values, spec, torch.finfo(dtype).smallest_normal * _SUBNORMAL)


def _huge_token(values: Tensor, spec: InputSpec, dtype: torch.dtype) -> Tensor:
    return _some_tokens(values, spec, -1, 1, _HUGE)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(name="normal", title="N(0, 1)", change=_same, hostile=False),
        Family(
            name="other-length",
            title="of a length that a fixed artifact must refuse",
            change=_same,
            hostile=False,
        ),
        Family(name=SAMPLES, title="real inputs of the module", change=_same, hostile=False),
        Family(
            name=EDGE,
            title="searched for: a denominator, root or logarithm of the module at its edge",
            change=_same,
        ),
        Family(name="scale=0.0001", title="N(0, 1) x 1e-4", change=_scaled(1e-4)),
        Family(name="scale=0.001", title="N(0, 1) x 0.001", change=_scaled(0.001)),
        Family(name="scale=30", title="N(0, 1) x 30", change=_scaled(30.0)),
        Family(name="scale=100", title="N(0, 1) x 100", change=_scaled(100.0)),
        Family(name="scale=10000", title="N(0, 1) x 1e4", change=_scaled(1e4)),
        Family(name="constant-rows", title="all tokens equal", change=_constant_rows, sampled=True),
        Family(name="zero-rows", title="every second token zero", change=_zero_rows, sampled=True),
        Family(
            name="zero-query",
            title="every second query zero",
            change=_zero_rows,
            inputs=("query",),
        ),
        Family(name="zero-key", title="every second key zero", change=_zero_rows, inputs=("key",)),
        Family(name="huge-token", title="the last token x 1e4", change=_huge_token),
        Family(name="denormals", title="every second token subnormal", change=_denormals),
        Family(
            name=NEGATIVE_FEATURES,
            title="key features near -24: elu + 1 near zero, relu zero",
            change=_same,
            directed=True,
            every_variant=True,
        ),
        Family(
            name=NEAR_ZERO_DENOMINATOR,
            title="keys opposite to queries: Taylor's denominator near zero",
            change=_same,
            directed=True,
        ),
        Family(
            name="right-padding",
            title="random lengths, padding on the right",
            change=_same,
            hostile=False,
            mask=True,
            every_variant=True,
            padding=("any", "right"),
        ),
        Family(
            name="left-padding",
            title="random lengths, padding on the left",
            change=_same,
            hostile=False,
            mask=True,
            every_variant=True,
            padding=("any", "left"),
        ),
        Family(
            name="inside-padding",
            title="padding between real tokens",
            change=_same,
            hostile=False,
            mask=True,
            every_variant=True,
            padding=("any",),
        ),
        Family(
            name="one-empty",
            title="the first sequence has no real token",
            change=_same,
            hostile=False,
            mask=True,
            every_variant=True,
            empty_rows=True,
        ),
        Family(
            name="all-masked",
            title="no sequence has a real token",
            change=_same,
            hostile=False,
            mask=True,
            every_variant=True,
            empty_rows=True,
        ),
        Family(
            name="one-token",
            title="one real token a sequence",
            change=_same,
            hostile=False,
            mask=True,
            every_variant=True,
        ),
    )
}


def along(values: Tensor, direction: Tensor) -> Tensor:
    """Tokens close to ``direction`` (last axis), each a little longer or shorter and off it.

    Args:
        values: N(0, 1), whose last axis is that of ``direction``.
        direction: one vector.
    """
    length = direction.abs().max()
    stretch = 1 + _JITTER * values[..., :1]
    return direction * stretch + _JITTER * _JITTER * length * values


def applicable(
    inputs: tuple[InputSpec, ...], *, mask: bool, directions: Directions
) -> list[Family]:
    """The families, besides ``normal``, that make sense for a model with these inputs."""
    names = {spec.name for spec in inputs}
    sampled = any(spec.kind == "sample" for spec in inputs)
    numbers = any(spec.kind in ("normal", "sample") for spec in inputs)
    masks = [spec for spec in inputs if spec.kind == "mask"]
    return [
        family
        for family in FAMILIES.values()
        if family.name not in _MADE_ELSEWHERE
        and (not family.mask or (mask and all(_suits(family, spec) for spec in masks)))
        and (family.mask or numbers)
        and (not sampled or family.sampled or family.mask)
        and set(family.inputs) <= names
        and (not family.directed or family.name in directions)
    ]


def _suits(family: Family, mask: InputSpec) -> bool:
    """Whether a mask may be as the family has it."""
    return mask.padding in family.padding and (mask.empty_rows or not family.empty_rows)
