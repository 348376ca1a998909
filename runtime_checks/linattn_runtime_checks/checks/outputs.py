"""Runs an artifact for its promised outputs, and says how two runs differ."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.contract.golden_pack import Case
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import K, error_of
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors

_BOTH_SIDES = 2.0
"""Two outputs, each up to K roundings from the truth, are up to 2 K from each other."""


def promised(session: Session, artifact: Artifact, inputs: Tensors) -> Tensors:
    """The promised outputs, copied: a runtime may hand out the same buffer again.

    Raises:
        RunFailed: it does not run, or an output is missing.
    """
    outputs = session.run(inputs)
    missing = [spec.name for spec in artifact.outputs if spec.name not in outputs]
    if missing:
        raise RunFailed(f"no output is called {', '.join(missing)}")
    return {spec.name: outputs[spec.name].copy() for spec in artifact.outputs}


def apart(output: NDArray[Any], expected: NDArray[Any], case: Case, name: str) -> str | None:
    """How two outputs differ beyond rounding; None if they do not."""
    if output.shape != expected.shape:
        return f"have shapes {list(output.shape)} and {list(expected.shape)}"
    if (np.isfinite(output) != np.isfinite(expected)).any():
        return "have NaN or infinity on one side only"
    error, allowed = error_of(output, expected.astype(np.float64)), case.yardstick(name)
    limit = _BOTH_SIDES * K
    if error.row <= limit * allowed.row and error.whole <= limit * allowed.whole:
        return None
    return f"differ by {error.row:.2e} of a row, where rounding costs {allowed.row:.1e}"


def differing(one: NDArray[Any], other: NDArray[Any]) -> str:
    """In how many elements, or in which shapes."""
    if one.shape != other.shape:
        return f"shapes {list(one.shape)} and {list(other.shape)}"
    return f"{int((one != other).sum())} element(s)"
