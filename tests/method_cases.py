"""Modules of every method, in both forms, and inputs and masks for them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from linattn import METHODS, Capabilities, Method

torch.set_num_threads(1)  # the tensors are tiny


BATCH, HEADS, D, E = 3, 2, 4, 5


N_MAX = 80  # of the methods whose weights bound the length


AXES = {"[N,D]": (), "[B,N,D]": (BATCH,), "[B,H,N,D]": (BATCH, HEADS)}


LENGTHS = (1, 2, 3, 31, 64, 65)


def real_tokens(n: int, lengths: list[int]) -> Tensor:
    return torch.arange(n) < torch.tensor(lengths).unsqueeze(1)


def random_mask(n: int) -> Tensor:
    return torch.rand(BATCH, n, generator=torch.Generator().manual_seed(n)) < 0.5


MASKS: dict[str, Callable[[int], Tensor | None]] = {
    "no mask": lambda n: None,
    "right padding": lambda n: real_tokens(n, [n, (n + 1) // 2, 1]),
    "left padding": lambda n: real_tokens(n, [n, (n + 1) // 2, 1]).flip(-1),
    "random mask": random_mask,
    "an empty sequence": lambda n: real_tokens(n, [n, 0, 1]),
}


def methods(where: Callable[[Capabilities], bool] = lambda c: True) -> pytest.MarkDecorator:
    chosen = [record for record in METHODS.values() if where(record.capabilities)]
    return pytest.mark.parametrize("record", chosen, ids=lambda record: record.name)


each_axes = pytest.mark.parametrize("axes", AXES.values(), ids=AXES.keys())


each_length = pytest.mark.parametrize("n", LENGTHS, ids=lambda n: f"N={n}")


each_mask = pytest.mark.parametrize("masking", MASKS)


each_form = pytest.mark.parametrize("form", ["eager", "scripted"])


def fields(record: Method, kind: object) -> list[str]:
    return [f.name for f in dataclasses.fields(record.config) if f.type == kind]


def bound(record: Method, n_max: int) -> dict[str, int]:
    """What sizes must be: the width of the inputs; kernels for any number of heads."""
    sizes = {"head_dim": D, "heads": 1, "max_length": n_max}
    return {name: sizes[name] for name in fields(record, int) if name in sizes}


def build(record: Method, n_max: int = N_MAX, **options: Any) -> Any:
    """The module in float64, small whatever its options are called."""
    torch.manual_seed(0)
    small = dict.fromkeys(fields(record, int), 6)
    return record.module(record.configure(small | bound(record, n_max) | options)).double()


@functools.cache
def modules(name: str) -> dict[str, nn.Module]:
    eager = build(METHODS[name])
    return {"eager": eager, "scripted": torch.jit.script(eager)}


def inputs(
    axes: tuple[int, ...], n: int, *, queries: int | None = None, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*axes, *shape, dtype=torch.float64, generator=generator)

    return normal(n if queries is None else queries, D), normal(n, D), normal(n, E)


def mask_for(axes: tuple[int, ...], masking: str, n: int) -> Tensor | None:
    mask = MASKS[masking](n)
    return mask[1] if mask is not None and not axes else mask


def oracle(record: Method, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
    return record.oracle(q, k, v, mask, module.config, module.state_dict())


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """Equal to 1e-12 of the largest entry, both in float64."""
    largest = expected.detach().abs().max().item()
    assert_close(actual, expected, rtol=0, atol=1e-12 * largest)
