"""Example inputs, drawn from the families of ``families.py``; equal seeds give equal bytes."""

import math
import zlib
from collections.abc import Mapping

import torch
from torch import Tensor

from linattn_export.inputs.domain import evenly, inside
from linattn_export.inputs.families import FAMILIES, SAMPLES, Directions, Family, along
from linattn_models import InputSpec, Task

_PADDED_SCALE = 10.0
_REAL_SHARE = 0.6  # of the tokens, where padding lies between them


def draw(
    specs: tuple[InputSpec, ...],
    sizes: dict[str, int],
    *,
    family: str,
    dtype: torch.dtype,
    seed: int,
    task: Task | None = None,
    directions: Directions | None = None,
    states: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Inputs by name.

    Args:
        specs: what to draw.
        sizes: of the symbolic axes.
        family: a name in FAMILIES. Padding is ten times as large as what is real.
        dtype: of floating-point inputs.
        seed: of the whole build.
        task: source of inputs of kind ``sample``.
        directions: of the model, for the families that follow one.
        states: of inputs of kind ``state``, by name.
    """
    shape = ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))
    generator = torch.Generator().manual_seed(
        seed * 1_000_003 + zlib.crc32(f"{family},{shape}".encode())
    )
    found: dict[str, Tensor] = {}
    padding = next((spec.padding for spec in specs if spec.kind == "mask"), "any")
    mask = _mask(sizes, family, generator, padding)
    chosen = FAMILIES[family]
    for spec in specs:
        axes = [sizes[axis] if isinstance(axis, str) else axis for axis in spec.axes]
        if family == SAMPLES and spec.samples is not None:
            kind = dtype if spec.samples.is_floating_point() else spec.samples.dtype
            found[spec.name] = first_rows(spec.samples, spec, sizes["batch"]).to(kind).contiguous()
            continue
        if spec.kind == "mask":
            found[spec.name] = mask if spec.dtype is None else mask.to(getattr(torch, spec.dtype))
            continue
        if spec.kind == "state":
            assert states is not None
            found[spec.name] = states[spec.name]
            continue
        if spec.kind == "tokens":
            drawn = torch.randint(spec.vocabulary, axes, generator=generator) + spec.lowest
            found[spec.name] = drawn.to(getattr(torch, spec.dtype or "int64"))
            continue
        if spec.kind == "sample":
            assert task is not None
            known = task.inputs[spec.name]
            rows = torch.randint(len(known), (axes[0],), generator=generator)
            values = known[rows, : axes[1]].double()
        else:
            values = _plain(spec, axes, dtype, generator)
        values = _changed(values, spec, chosen, dtype, directions or {})
        values = inside(_enlarge_padding(values, spec, mask), spec, dtype)
        found[spec.name] = values.to(dtype).contiguous()
    return found


def _plain(
    spec: InputSpec, axes: list[int], dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    domain = spec.domain
    if domain is not None and math.isfinite(domain.low) and math.isfinite(domain.high):
        drawn = torch.rand(axes, generator=generator, dtype=torch.float64)
        return evenly(drawn, domain, dtype)
    return spec.scale * torch.randn(axes, generator=generator, dtype=torch.float64)


def _changed(
    values: Tensor, spec: InputSpec, family: Family, dtype: torch.dtype, directions: Directions
) -> Tensor:
    if family.inputs and spec.name not in family.inputs:
        return values
    if family.directed:
        direction = directions[family.name].get(spec.name)
        return values if direction is None else along(values, direction)
    return family.change(values, spec, dtype)


def _mask(sizes: dict[str, int], family: str, generator: torch.Generator, padding: str) -> Tensor:
    batch, sequence = sizes["batch"], sizes["sequence"]
    position = torch.arange(sequence).expand(batch, sequence)
    real = torch.randint(1, sequence + 1, (batch, 1), generator=generator)
    # What takes the last token by their number looks at padding only where that is most of a row.
    real[0] = real[0].clamp(max=max(sequence // 4, 1))
    if family == "right-padding":
        return (position < real).contiguous()
    if family == "left-padding":
        return (position >= sequence - real).contiguous()
    if family == "one-token":
        only = {"right": 0, "left": sequence - 1}.get(padding, real - 1)
        return (position == only).contiguous()
    if family == "inside-padding":
        return _with_holes(batch, sequence, generator)
    mask = torch.ones(batch, sequence, dtype=torch.bool)
    if family == "one-empty":
        mask[0] = False
    if family == "all-masked":
        mask[:] = False
    return mask


def _with_holes(batch: int, sequence: int, generator: torch.Generator) -> Tensor:
    """Real tokens at both ends and at random places in between, the second token never."""
    mask = torch.rand(batch, sequence, generator=generator) < _REAL_SHARE
    mask[:, 1:2] = False
    mask[:, [0, -1]] = True
    return mask


def _enlarge_padding(values: Tensor, spec: InputSpec, mask: Tensor) -> Tensor:
    """Padding far from the real tokens, so that a leak shows."""
    real = torch.ones(values.shape, dtype=torch.bool)
    for rows in _places("batch", spec):
        for tokens in _places("sequence", spec):
            along = mask if rows < tokens else mask.T
            shape = [1] * values.dim()
            shape[rows], shape[tokens] = mask.shape
            real &= along.reshape(shape)
    return torch.where(real, values, values * _PADDED_SCALE)


def _places(name: str, spec: InputSpec) -> list[int]:
    return [place for place, axis in enumerate(spec.axes) if axis == name]


def first_rows(samples: Tensor, spec: InputSpec, rows: int) -> Tensor:
    """As many of the real inputs as a case has sequences."""
    for place in _places("batch", spec):
        samples = samples.narrow(place, 0, rows)
    return samples
