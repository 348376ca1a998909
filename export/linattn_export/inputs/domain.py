"""Keeps numbers inside of what an input may hold: drawn ones, and those moved by rounding."""

import math

import torch
from torch import Tensor

from linattn_models import Domain, InputSpec


def ends(domain: Domain, dtype: torch.dtype) -> tuple[float, float]:
    """The lowest and highest number of ``dtype`` between the declared ends."""
    low, high = _rounded(domain.low, dtype), _rounded(domain.high, dtype)
    if low < domain.low:
        low = _neighbour(low, math.inf, dtype)
    if high > domain.high:
        high = _neighbour(high, -math.inf, dtype)
    limits = torch.finfo(dtype)
    return max(low, limits.min), min(high, limits.max)


def smallest(domain: Domain, dtype: torch.dtype) -> float:
    """What stands for 0 where only positive numbers are taken.

    Not the smallest there is: runtimes may take subnormal numbers for 0.
    """
    low, high = ends(domain, dtype)
    return min(max(low, torch.finfo(dtype).smallest_normal), high)


def evenly(values: Tensor, domain: Domain, dtype: torch.dtype) -> Tensor:
    """Numbers from 0 to 1 as numbers from end to end; both are finite."""
    low, high = ends(domain, dtype)
    return low * (1 - values) + high * values


def inside(values: Tensor, spec: InputSpec, dtype: torch.dtype) -> Tensor:
    """``values`` as the input may hold them, also once they are rounded to ``dtype``."""
    domain = spec.domain
    if domain is None or not values.is_floating_point():
        return values
    low, high = ends(domain, dtype)
    if domain.positive:
        values = values.abs()
    values = values.clamp(low, high)
    if domain.positive:
        vanishes = values.to(dtype) == 0
        values = torch.where(vanishes, smallest(domain, dtype), values)
    return values


def _rounded(number: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(number, dtype=torch.float64).to(dtype))


def _neighbour(number: float, towards: float, dtype: torch.dtype) -> float:
    start, goal = torch.tensor(number, dtype=dtype), torch.tensor(towards, dtype=dtype)
    return float(torch.nextafter(start, goal))
