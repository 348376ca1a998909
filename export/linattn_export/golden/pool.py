"""Special inputs, inside of what a module may be given, from which a search for edges starts."""

import torch
from torch import Tensor

from linattn_export.inputs.domain import inside
from linattn_export.inputs.drawing import draw
from linattn_export.subjects.subject import Subject
from linattn_models import InputSpec

Inputs = dict[str, Tensor]

_JITTER, _TINY = 8, 1e-12
"""Rounding units, and a size for 0, that keep numbers apart."""


def candidates(subject: Subject, sizes: dict[str, int]) -> list[Inputs]:
    """Normal inputs first, then special ones, all inside of what the inputs may hold."""
    usual = draw(subject.inputs, sizes, family="normal", dtype=subject.dtype, seed=subject.seed)
    found = [usual]
    for change in (
        lambda x: torch.zeros_like(x),
        lambda x: torch.ones_like(x),
        lambda x: -torch.ones_like(x),
        lambda x: -100 * x.abs(),
        lambda x: 100 * x.abs(),
        lambda x: 1e-4 * x,
        lambda x: 100 * x,
        _signs,
        lambda x: -_signs(x),
        _first_token,
        lambda x: x[..., :1].expand_as(x),
    ):
        changed = {
            spec.name: settled(change(usual[spec.name].double()), spec, subject.dtype)
            for spec in subject.inputs
            if moves(spec) and usual[spec.name].dim() > 0
        }
        found.append(usual | changed)
    found += [usual | {s.name: _tokens(s, usual[s.name], place) for s in subject.inputs
                       if s.values is not None} for place in (0, 1)]  # fmt: skip
    return found


def settled(values: Tensor, spec: InputSpec, dtype: torch.dtype) -> Tensor:
    """``values`` as the input may hold them, none quite equal to another.

    Equal tokens less their mean are 0 by symmetry; what single precision gives there, and whether
    it is 0 too, is luck.
    """
    limits = torch.finfo(dtype)
    noise = torch.randn(values.shape, generator=torch.Generator().manual_seed(0)).double()
    floor = max(_TINY, limits.smallest_normal / 16)
    values = inside(values, spec, dtype)
    noise *= torch.clamp(_JITTER * limits.eps * values.abs(), min=floor)
    up, down = (inside(values + way, spec, dtype) for way in (noise, -noise))
    return torch.where(up == values, down, up).to(dtype).contiguous()


def moves(spec: InputSpec) -> bool:
    """Whether its numbers are free to change."""
    return spec.kind == "normal"


def _signs(x: Tensor) -> Tensor:
    """Channels of 1 and -1 by turns."""
    return (1 - 2 * (torch.arange(x.shape[-1]) % 2)).to(x.dtype).expand_as(x)


def _first_token(x: Tensor) -> Tensor:
    """Nothing but the first element of the last axes but one."""
    found = torch.zeros_like(x)
    if x.dim() > 1:
        found.select(-2, 0).copy_(x.select(-2, 0))
    return found


def _tokens(spec: InputSpec, tokens: Tensor, place: int) -> Tensor:
    assert spec.values is not None
    return torch.full_like(tokens, spec.values[place])
