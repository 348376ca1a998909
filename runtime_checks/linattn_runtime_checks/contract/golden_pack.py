"""The golden pack: stored inputs and float64 outputs, so that no torch is needed to judge.

A safetensors file: tensors ``<case>/input/<name>`` and ``<case>/output/<name>``, of very long cases
``<case>/tokens`` and ``<case>/rows`` too (see :class:`Long`), and in the file's metadata, under
``linattn.reference``, the JSON of :class:`ReferenceIndex`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.contract.fingerprint import Fingerprint
from linattn_runtime_checks.contract.verdict import Error, yardstick

_KEY = "linattn.reference"
Tensors = dict[str, NDArray[Any]]

MAX_TOKENS_PER_CASE = 8192
"""Batch times length of the largest case: a fraction of a second on two cores."""


class StoredError(BaseModel):
    """An :class:`Error` on disk; infinite where NaN or infinity came out."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    row: float
    whole: float

    def error(self) -> Error:
        """As the verdict takes it."""
        return Error(row=self.row, whole=self.whole)


class Rounding(BaseModel):
    """What rounding costs on one output; see the verdict."""

    eager_error: StoredError
    sensitivity: StoredError


class Long(BaseModel):
    """How a case of very many tokens is stored in part.

    ``inputs`` maps the inputs of which some tokens are stored to their axis of tokens; the tensor
    ``<case>/tokens`` says which of them is at each place. ``outputs`` maps the outputs of which
    some rows are stored to their axis; the tensor ``<case>/rows`` says at which places they are.
    """

    inputs: dict[str, int]
    outputs: dict[str, int]


class Case(BaseModel):
    """One input and how exactly its output is known.

    ``stored`` names the tensors. They may hold fewer sequences than ``batch``; the case then runs
    them over and over. Every sequence of a batch must come out as it does alone, so a large batch
    needs no storage of its own.
    """

    name: str
    family: str
    batch: int
    sequence: int
    stored: str
    timed: bool = False
    hostile: bool = False
    """Made to be hard: a yardstick too large to judge is reported, and is no failure."""
    eager_error: StoredError
    sensitivity: StoredError
    states: dict[str, Rounding] = {}
    """The same for further outputs, by name."""
    long: Long | None = None
    """Set where tokens and rows are stored in part; a pack without it holds them all."""

    def yardstick(self, output: str = "") -> Error:
        """What rounding costs on this input: on the first output, or on a further one."""
        known = self.states.get(output, self)
        return yardstick(known.eager_error.error(), known.sensitivity.error())

    def rounding(self, output: str = "") -> float:
        """The larger part of the yardstick: the share of an output that rounding can move."""
        allowed = self.yardstick(output)
        return max(allowed.row, allowed.whole)


class TaskIndex(BaseModel):
    """Held-out data of a trained model: the tensors ``task/input/<name>`` and ``task/labels``.

    ``reference_score`` is that of the float64 module, ``allowed`` by how much rounding may make an
    artifact worse; ``classes`` are named as in the manifest.
    """

    metric: str
    description: str
    reference_score: float
    allowed: float
    classes: list[str] = []


class Origin(BaseModel):
    """How the module was made; its weights are the tensors ``weights/<name>`` of the pack."""

    model: str
    method: str
    method_options: dict[str, bool | int | float | str | None]
    module: str | None = None
    """The factory of a module of one's own, as ``package.module:factory``."""
    d_model: int | None
    heads: int | None
    dtype: str
    mask: bool
    entry: str = "forward"


class Known(BaseModel):
    """What the captured program of one variant computes on the inputs of ``case``, node by node."""

    case: str
    nodes: list[Fingerprint]


class ReferenceIndex(BaseModel):
    """What the pack holds."""

    dtype: str
    cases: list[Case]
    task: TaskIndex | None = None
    origin: Origin | None = None
    fingerprints: dict[str, Known] = {}
    """By the name of the variant; for blame."""
    batch_axes: dict[str, int | list[int] | None] = {}
    """Which axis of an input or output is the batch, where not the first alone; None for none."""
    left_out: dict[str, str] = {}
    """Families of inputs on which the module itself raises, to what it raised."""
    stream: Case | None = None
    """A sequence to run piece by piece, where the graph has a state."""


class Reference:
    """An open golden pack; tensors are read when asked for."""

    def __init__(self, handle: Any, index: ReferenceIndex) -> None:
        self._handle = handle
        self.index = index

    def case(self, name: str) -> Case:
        """The case called ``name``."""
        return next(case for case in self.index.cases if case.name == name)

    def inputs(self, case: Case) -> Tensors:
        """The inputs of ``case`` by name, in the dtype of the artifact."""
        found = self._part(f"{case.stored}/input/", case.batch)
        if case.long is not None:
            tokens = self._handle.get_tensor(f"{case.stored}/tokens")
            for name, axis in case.long.inputs.items():
                found[name] = found[name].take(tokens, axis=axis)
        return found

    def outputs(self, case: Case) -> Tensors:
        """The float64 outputs of ``case`` by name; of a long case the rows that are stored."""
        return self._part(f"{case.stored}/output/", case.batch)

    def compared(self, case: Case, name: str, output: NDArray[Any]) -> NDArray[Any]:
        """What of the output ``name`` of a run of ``case`` is compared with :meth:`outputs`.

        All of it but where the case is long; then the rows that are stored. An output that has not
        the length of the case stays whole, so that its shape differs.
        """
        axis = None if case.long is None else case.long.outputs.get(name)
        if axis is None or output.ndim <= axis or output.shape[axis] != case.sequence:
            return output
        rows: NDArray[np.int32] = self._handle.get_tensor(f"{case.stored}/rows")
        return output.take(rows, axis=axis)

    def task_data(self) -> tuple[Tensors, NDArray[np.int64]]:
        """Inputs by name and labels of the task."""
        return self._all("task/input/"), self._handle.get_tensor("task/labels")

    def weights(self) -> Tensors:
        """The module's state dict."""
        return self._all("weights/")

    def _part(self, prefix: str, batch: int) -> Tensors:
        return {
            name: repeated(tensor, batch, self.index.batch_axes.get(name, 0))
            for name, tensor in self._all(prefix).items()
        }

    def _all(self, prefix: str) -> Tensors:
        keys = [key for key in self._handle.keys() if key.startswith(prefix)]  # noqa: SIM118
        return {key.removeprefix(prefix): self._handle.get_tensor(key) for key in keys}


def repeated(tensor: NDArray[Any], batch: int, axes: int | list[int] | None) -> NDArray[Any]:
    """``tensor`` with ``batch`` sequences along its ``axes``: its own, over and over.

    What is of pairs of sequences has two of them.
    """
    for axis in [axes] if isinstance(axes, int) else axes or []:
        tensor = tensor.take(np.arange(batch) % tensor.shape[axis], axis=axis)
    return tensor


@contextmanager
def open_reference(path: Path) -> Iterator[Reference]:
    """Open the pack at ``path``.

    Raises:
        ExportError: it is not a golden pack.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as handle:
            text = (handle.metadata() or {}).get(_KEY)
            if text is None:
                raise ExportError(
                    f"{path} is not a golden pack (no {_KEY}); build the folder again"
                )
            yield Reference(handle, ReferenceIndex.model_validate_json(text))
    except SafetensorError as error:
        raise ExportError(f"{path} cannot be read ({error}); build the folder again") from error


def holder(packs: Sequence[Reference], name: str) -> tuple[Reference, Case] | None:
    """The pack that holds the case called ``name``, and the case."""
    for pack in packs:
        for case in pack.index.cases:
            if case.name == name:
                return pack, case
    return None


def write_reference(path: Path, index: ReferenceIndex, tensors: Mapping[str, Any]) -> None:
    """Write a pack; equal content gives equal bytes."""
    from safetensors.numpy import save

    text = index.model_dump_json()
    # Not np.ascontiguousarray, which gives a number without axes one.
    arrays = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    path.write_bytes(save(arrays, metadata={_KEY: text}))
