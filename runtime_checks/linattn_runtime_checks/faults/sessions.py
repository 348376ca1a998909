"""Faults of a runtime: a session that lies, dies or hangs. They need no file of their own.

Each wraps an opened session, so that it can be planted in any format.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.faults.streams import (
    FutureLeaks,
    StateFades,
    StateForgotten,
    StateKept,
    has_states,
    sees_the_past_only,
)
from linattn_runtime_checks.faults.wrapped import Faulty
from linattn_runtime_checks.runtimes.base import Session, Tensors
from linattn_runtime_checks.runtimes.onnx_runtime import CUDA, require_provider

_HOURS = 3600.0 * 24


class _Stale(Faulty):
    """Of two runs with equal shapes, the second returns the output of the first."""

    def __init__(self, session: Session, artifact: Artifact) -> None:
        super().__init__(session, artifact)
        self._kept: dict[tuple[tuple[int, ...], ...], Tensors] = {}

    def run(self, inputs: Tensors) -> Tensors:
        shapes = tuple(tensor.shape for tensor in inputs.values())
        previous = self._kept.get(shapes)
        self._kept[shapes] = {
            name: tensor.copy() for name, tensor in self._session.run(inputs).items()
        }
        return self._kept[shapes] if previous is None else previous


class _Nan(Faulty):
    """NaN in the very last position."""

    def run(self, inputs: Tensors) -> Tensors:
        def change(tensor: NDArray[Any]) -> None:
            tensor.reshape(-1)[-1] = np.nan

        return self._outputs(inputs, change)


class _Swapped(Faulty):
    """Two rows of the output in each other's place: of the batch, or of the tokens."""

    def run(self, inputs: Tensors) -> Tensors:
        def change(tensor: NDArray[Any]) -> None:
            rows = tensor if len(tensor) > 1 else tensor[0]
            rows[[0, -1]] = rows[[-1, 0]]

        return self._outputs(inputs, change)


class _LastTokenMissing(Faulty):
    """The last row of tokens is never written."""

    def run(self, inputs: Tensors) -> Tensors:
        def change(tensor: NDArray[Any]) -> None:
            rows = tensor if tensor.ndim < 3 else tensor.swapaxes(0, tensor.ndim - 2)
            rows[-1] = 0

        return self._outputs(inputs, change)


class _Coarse(Faulty):
    """The output rounded to 8 bits of mantissa, as bfloat16 has."""

    def run(self, inputs: Tensors) -> Tensors:
        def change(tensor: NDArray[Any]) -> None:
            bits = tensor.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
            tensor[...] = bits.view(np.float32)

        return self._outputs(inputs, change)


class _Drifting(Faulty):
    """Every run adds a little: state that is kept between runs."""

    def __init__(self, session: Session, artifact: Artifact) -> None:
        super().__init__(session, artifact)
        self._runs = 0

    def run(self, inputs: Tensors) -> Tensors:
        self._runs += 1

        def change(tensor: NDArray[Any]) -> None:
            tensor *= tensor.dtype.type(1 + 2e-3 * self._runs)

        return self._outputs(inputs, change)


class _AnyLength(Faulty):
    """Another length than the fixed one is repeated or cut until it fits."""

    def run(self, inputs: Tensors) -> Tensors:
        length, _ = self._artifact.axis("sequence").declared
        fitted = dict(inputs)
        for spec in self._artifact.inputs:
            if "sequence" in spec.axes:
                axis, tensor = spec.axes.index("sequence"), inputs[spec.name]
                tokens = np.arange(length) % tensor.shape[axis]
                fitted[spec.name] = np.ascontiguousarray(np.take(tensor, tokens, axis))
        return self._session.run(fitted)


class _Crash(Faulty):
    """The native code aborts."""

    def run(self, inputs: Tensors) -> Tensors:
        os.abort()


class _Hang(Faulty):
    """A run that never ends."""

    def run(self, inputs: Tensors) -> Tensors:
        time.sleep(_HOURS)
        return self._session.run(inputs)


class _OutOfMemory(Faulty):
    """A run that allocates without end, and fails as numpy does when there is no more."""

    def run(self, inputs: Tensors) -> Tensors:
        raise MemoryError("Unable to allocate 8.00 TiB for an array")


class _MemoryHog(Faulty):
    """A run that takes memory until there is none; for --memory-limit."""

    def run(self, inputs: Tensors) -> Tensors:
        taken = []
        while True:
            taken.append(np.ones(1 << 24))


class _OtherProvider(Faulty):
    """CUDA was asked for; the session runs on the CPU."""

    def __init__(self, session: Session, artifact: Artifact) -> None:
        super().__init__(session, artifact)
        require_provider(CUDA, session.providers())


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFault:
    """One fault: its name, what it is, what wraps the session, and which artifacts it fits."""

    name: str
    title: str
    wrap: Callable[[Session, Artifact], Session]
    fits: Callable[[Artifact], bool] = lambda artifact: True


SESSION_FAULTS: dict[str, SessionFault] = {
    name: SessionFault(name=name, title=title, wrap=wrap)
    for name, title, wrap in (
        ("stale-output", "the output of the run before", _Stale),
        ("nan-at-one-position", "NaN in the last element", _Nan),
        ("swapped-outputs", "two rows of the output swapped", _Swapped),
        ("last-token-missing", "the output row of the last token is zero", _LastTokenMissing),
        ("bfloat16-output", "the output rounded to bfloat16", _Coarse),
        ("state-between-runs", "every run adds to the output", _Drifting),
        ("crash", "the native code aborts", _Crash),
        ("hang", "a run that never ends", _Hang),
        ("out-of-memory", "a run that cannot allocate", _OutOfMemory),
        ("memory-hog", "a run that takes all memory", _MemoryHog),
        ("cpu-instead-of-cuda", "the CPU ran what CUDA was asked for", _OtherProvider),
    )
} | {
    name: SessionFault(name=name, title=title, wrap=wrap, fits=fits)
    for name, title, wrap, fits in (
        ("future-leaks", "0.001 of the last token in the first output", FutureLeaks,
         sees_the_past_only),
        ("length-fitted", "another length cut until it fits", _AnyLength,
         lambda artifact: artifact.refuses_lengths),
        ("state-forgotten", "every run starts afresh", StateForgotten, has_states),
        ("state-kept", "the state that comes out is what went in", StateKept, has_states),
        ("state-fades", "0.001 of the state lost in every run", StateFades, has_states),
    )
}  # fmt: skip
