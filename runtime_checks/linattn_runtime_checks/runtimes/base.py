"""What a runtime is: something that opens an artifact and runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from linattn_runtime_checks.contract.manifest import Artifact, TensorSpec
from linattn_runtime_checks.cost.certificate import CostCertificate

Tensors = dict[str, NDArray[Any]]

ANY_SYMBOL = "*"
"""In the shape that a session reports: a symbolic axis whose name the format does not keep."""


Signature = tuple[list[TensorSpec], list[TensorSpec]]
"""Inputs and outputs as a file declares them."""


class RunFailed(Exception):
    """The runtime refused or failed to run an input; the text is the runtime's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How to open: ``mode`` is one of the runtime's modes, ``threads`` within one operator."""

    mode: str
    threads: int


class Session(Protocol):
    """An opened artifact."""

    def run(self, inputs: Tensors) -> Tensors:
        """Outputs by name for inputs by name.

        Raises:
            RunFailed: the runtime could not.
        """

    def signature(self) -> Signature | None:
        """Inputs and outputs as the file declares them; None if the format does not say."""

    def labels(self) -> str | None:
        """What the file says under ``linattn.labels``; None if it, or its format, says nothing."""

    def providers(self) -> list[str]:
        """The execution providers in force, first choice first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One runtime: each runtime file ends with these.

    ``unavailable()`` gives the reason and the fix when it cannot be used here, None when it can.
    ``prepare()`` imports what ``open`` will need. ``modes`` are all judged; the last is the one
    that users run, and is the one that is timed.
    ``open`` raises ExportError for a file that does not load and EnvironmentProblem when what
    runs would not be what was asked for. ``placed(path, artifact, options, inputs)``
    proves which nodes ran where, and raises like ``open``. ``certify(path, artifact, session)``
    reads the cost off the graph, where the format has one to read. ``keeps_memory``: a session
    holds on to what its runs needed, and so would hide what the next one needs.
    ``program``: the lines of Python that open the file ``here / FILE`` and run it, for programs
    that show a failure; from ``inputs``, a dictionary by name, they make ``outputs``, another.
    ``INPUTS`` and ``OUTPUTS`` are the names in order. Without it, no such program is written.
    ``declares_shapes`` and ``declares_labels``: its files say which inputs and outputs they have,
    and which classes. ``onnx_graphs``: its files are ONNX graphs, in which
    blame names the first node that departs, and faults are planted.
    ``judges_kernels``: blame can tell a kernel that is not exact from a file that is wrong.
    """

    name: str
    title: str
    formats: tuple[str, ...]
    modes: tuple[str, ...]
    unavailable: Callable[[], str | None]
    prepare: Callable[[], None]
    open: Callable[[Path, Artifact, SessionOptions], Session]
    keeps_memory: bool = False
    declares_shapes: bool = True
    declares_labels: bool = False
    placed: Callable[[Path, Artifact, SessionOptions, Tensors], Any] | None = None
    certify: Callable[[Path, Artifact, Any], list[CostCertificate]] | None = None
    program: str | None = None
    judges_kernels: bool = False
    onnx_graphs: bool = False
