"""Checks of what the configs of layers hold."""

import math

from linattn.contract import MethodError


def at_least(name: str, value: int, least: int) -> None:
    """Raise MethodError if ``value`` is below ``least``."""
    if value < least:
        raise MethodError(f"{name} must be at least {least}, got {value}")


def positive(name: str, value: float) -> None:
    """Raise MethodError unless ``value`` is above 0 and finite."""
    if not 0 < value < math.inf:
        raise MethodError(f"{name} must be above 0 and finite, got {value!r}")


def divides(name: str, value: int, heads: int) -> None:
    """Raise MethodError unless ``value`` divides the number of heads."""
    if heads % value:
        raise MethodError(f"{name} must divide the number of heads, {heads}, got {value}")
