"""Tensors by their tokens and sequences, however many of their axes count them.

A bias of attention has two axes of tokens: one of its numbers belongs to two tokens.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.contract.manifest import TensorSpec


def spread(mask: NDArray[np.bool_], spec: TensorSpec, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The mask [batch, sequence] broadcast to a tensor with the axes of ``spec``.

    True where all tokens that a number belongs to are real.
    """
    found = np.ones(shape, dtype=bool)
    for rows in axes_called("batch", spec):
        for tokens in axes_called("sequence", spec):
            along = mask if rows < tokens else mask.T
            places = [1] * len(shape)
            places[rows], places[tokens] = mask.shape
            found &= along.reshape(places)
    return found


def reordered(tensor: NDArray[Any], spec: TensorSpec, order: NDArray[np.int64]) -> NDArray[Any]:
    """``tensor`` with its tokens in another order, along every axis of tokens."""
    return _taken(tensor, spec, "sequence", order)


def until(tensor: NDArray[Any], spec: TensorSpec, place: int) -> NDArray[Any]:
    """What belongs to the tokens before ``place`` alone."""
    return _taken(tensor, spec, "sequence", np.arange(place))


def rows_of(tensor: NDArray[Any], spec: TensorSpec, start: int, count: int) -> NDArray[Any]:
    """Some sequences of a batch; all of a tensor that has no batch axis."""
    return _taken(tensor, spec, "batch", np.arange(start, start + count))


def another_from(tensor: NDArray[Any], spec: TensorSpec, place: int) -> NDArray[Any]:
    """``tensor`` with other tokens from ``place`` on.

    Whole numbers stay among those it holds, others inside of what the input may hold.
    """
    changes = np.zeros(tensor.shape, dtype=bool)
    for axis in axes_called("sequence", spec):
        later = np.arange(tensor.shape[axis]) >= place
        changes |= later.reshape([-1 if at == axis else 1 for at in range(tensor.ndim)])
    if tensor.dtype.kind == "i":
        another = tensor.min() + tensor.max() - tensor
    elif spec.range is not None:
        another = inside(sum(spec.range) - tensor, spec)
    else:
        another = 1 + tensor if spec.positive else 1 - tensor
    return np.where(changes, another, tensor)


def inside(values: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Floating-point ``values`` as the input may hold them; NaN stays."""
    kind = values.dtype.type
    if spec.positive:
        values = np.abs(values)
        values = np.where(values == 0, np.finfo(values.dtype).smallest_normal, values)
    if spec.range is not None:
        low, high = (kind(end) for end in spec.range)
        # What an end is rounded to may lie outside.
        low = np.nextafter(low, kind(np.inf)) if float(low) < spec.range[0] else low
        high = np.nextafter(high, kind(-np.inf)) if float(high) > spec.range[1] else high
        values = np.clip(values, low, high)
    return values.astype(kind)


def axes_called(name: str, spec: TensorSpec) -> list[int]:
    """The places of all axes called ``name``."""
    return [place for place, axis in enumerate(spec.axes) if axis == name]


def _taken(
    tensor: NDArray[Any], spec: TensorSpec, name: str, order: NDArray[np.int64]
) -> NDArray[Any]:
    for axis in axes_called(name, spec):
        tensor = tensor.take(order, axis=axis)
    return np.asarray(tensor, order="C")  # not ascontiguousarray: a number without axes has none
