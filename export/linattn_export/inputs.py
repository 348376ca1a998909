"""Example inputs, drawn from named families; equal seeds give equal bytes."""

import zlib

import torch
from torch import Tensor

from linattn_models import InputSpec, Task

_PADDED_SCALE = 10.0


def draw(
    specs: tuple[InputSpec, ...],
    sizes: dict[str, int],
    *,
    family: str,
    dtype: torch.dtype,
    seed: int,
    task: Task | None = None,
) -> dict[str, Tensor]:
    """Inputs by name.

    Args:
        specs: what to draw.
        sizes: of the symbolic axes.
        family: ``normal`` N(0, 1); ``scale=X`` the same times X; and, for models with a mask,
            ``right-padding``, ``left-padding`` (random lengths, padding ten times as large),
            ``one-empty`` (the first sequence has no real token) and ``one-token``.
        dtype: of floating-point inputs.
        seed: of the whole build.
        task: source of inputs of kind ``sample``.
    """
    shape = ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))
    generator = torch.Generator().manual_seed(
        seed * 1_000_003 + zlib.crc32(f"{family},{shape}".encode())
    )
    found: dict[str, Tensor] = {}
    scale = float(family.removeprefix("scale=")) if family.startswith("scale=") else 1.0
    mask = _mask(sizes, family, generator)
    for spec in specs:
        axes = [sizes[axis] if isinstance(axis, str) else axis for axis in spec.axes]
        if spec.kind == "mask":
            found[spec.name] = mask
        elif spec.kind == "sample":
            assert task is not None
            rows = torch.randint(len(task.inputs), (axes[0],), generator=generator)
            found[spec.name] = task.inputs[rows, : axes[1]].to(dtype).contiguous()
        else:
            values = torch.randn(axes, generator=generator, dtype=torch.float64) * scale
            values = _enlarge_padding(values, spec, mask)
            found[spec.name] = values.to(dtype)
    return found


def _mask(sizes: dict[str, int], family: str, generator: torch.Generator) -> Tensor:
    batch, sequence = sizes["batch"], sizes["sequence"]
    position = torch.arange(sequence).expand(batch, sequence)
    real = torch.randint(1, sequence + 1, (batch, 1), generator=generator)
    if family == "right-padding":
        return (position < real).contiguous()
    if family == "left-padding":
        return (position >= sequence - real).contiguous()
    if family == "one-token":
        return (position == real - 1).contiguous()
    mask = torch.ones(batch, sequence, dtype=torch.bool)
    if family == "one-empty":
        mask[0] = False
    return mask


def _enlarge_padding(values: Tensor, spec: InputSpec, mask: Tensor) -> Tensor:
    """Padding far from the real tokens, so that a leak shows."""
    shape = [
        mask.shape[("batch", "sequence").index(a)] if isinstance(a, str) else 1 for a in spec.axes
    ]
    return torch.where(mask.reshape(shape), values, values * _PADDED_SCALE)
