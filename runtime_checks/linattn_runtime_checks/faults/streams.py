"""Faults of graphs with a state, and of causal ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.faults.wrapped import Faulty
from linattn_runtime_checks.runtimes.base import Tensors

_HAIR = 1e-3


class StateForgotten(Faulty):
    """Every run starts afresh, whatever state comes in."""

    def run(self, inputs: Tensors) -> Tensors:
        """See Session."""
        zeros = {link.input: np.zeros_like(inputs[link.input]) for link in self._artifact.states}
        return self._session.run({**inputs, **zeros})


class StateKept(Faulty):
    """The state that comes out is the one that went in."""

    def run(self, inputs: Tensors) -> Tensors:
        """See Session."""
        outputs = self._session.run(inputs)
        return {**outputs, **{k.output: inputs[k.input].copy() for k in self._artifact.states}}


class StateFades(Faulty):
    """A thousandth of the state is lost in every run."""

    def run(self, inputs: Tensors) -> Tensors:
        """See Session."""
        outputs = self._session.run(inputs)
        for link in self._artifact.states:
            state = outputs[link.output]
            outputs[link.output] = state * state.dtype.type(1 - _HAIR)
        return outputs


class FutureLeaks(Faulty):
    """A thousandth of the last token's output in that of the first."""

    def run(self, inputs: Tensors) -> Tensors:
        """See Session."""
        outputs = self._session.run(inputs)
        spec = self._artifact.outputs[0]
        tensor: NDArray[Any] = outputs[spec.name].copy()
        rows = np.moveaxis(tensor, spec.axes.index("sequence"), 0)
        if len(rows) > 1:
            rows[0] += rows.dtype.type(_HAIR) * rows[-1]
        return {**outputs, spec.name: tensor}


def has_states(artifact: Artifact) -> bool:
    """Whether ``artifact`` goes on from a state."""
    return bool(artifact.states)


def sees_the_past_only(artifact: Artifact) -> bool:
    """Whether ``artifact`` is causal, of several tokens, each with an output."""
    several = artifact.axis("sequence").declared[1] > 1
    return artifact.causal and several and "sequence" in artifact.outputs[0].axes
