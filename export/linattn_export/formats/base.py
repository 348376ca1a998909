"""What a format is: something that writes an artifact and reads back what it wrote."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from torch import nn
from torch.export import ExportedProgram

from linattn_export.capture.program import capture
from linattn_export.capture.unrolled import unrolled
from linattn_export.options.onnx_forms import FORMS
from linattn_export.options.variants import Variant
from linattn_export.subjects.subject import Subject
from linattn_models import Domain
from linattn_runtime_checks.contract.manifest import FloatName, Note, TensorSpec

_DTYPES = {"mask": "bool", "tokens": "int64", "state": "float32"}
"""Of inputs by kind, whatever the dtype of the artifact; a state in half precision drifts."""


@dataclass(kw_only=True)
class Job:
    """One subject in one variant, to be written in several formats."""

    subject: Subject
    variant: Variant
    opset: int
    metadata: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(subject: Subject, variant: Variant, opset: int) -> "Job":
        """With the opset that the form needs, if it needs one."""
        return Job(subject=subject, variant=variant, opset=FORMS[variant.form].opset or opset)

    @cached_property
    def entry(self) -> nn.Module:
        """The module to export."""
        return self.subject.entry(self.variant.length)

    @cached_property
    def program(self) -> ExportedProgram:
        """The one capture that the formats share."""
        return capture(self.entry, self.subject, self.variant)

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """What the capture says of every file that is made from it."""
        return unrolled(self.program, self.subject, self.variant)

    @property
    def dtype(self) -> FloatName:
        """Of weights, floating-point inputs and outputs, as the manifest names it."""
        return cast(FloatName, str(self.subject.dtype).removeprefix("torch."))

    def specs(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """The inputs and outputs that the artifact promises."""
        dtype = self.dtype
        inputs = [
            TensorSpec(
                name=spec.name,
                dtype=spec.dtype or _DTYPES.get(spec.kind, dtype),
                shape=self._shape(spec.axes),
                axes=list(spec.axes),
                mask=spec.kind == "mask",
                values=spec.values,
                range=_range(spec.domain),
                positive=spec.domain is not None and spec.domain.positive,
            )
            for spec in self.subject.inputs
        ]
        states = {f"present_{state.name}" for state in self.subject.states}
        outputs = [
            TensorSpec(
                name=name,
                dtype=_DTYPES["state"] if name in states else dtype,
                shape=self._shape(axes),
                axes=list(axes),
            )
            for name, axes in self.subject.outputs.items()
        ]
        return inputs, outputs

    def _shape(self, axes: tuple[str | int, ...]) -> list[str | int]:
        def resolve(axis: str | int) -> str | int:
            if isinstance(axis, int):
                return axis
            size = self.variant.size(axis)
            return size.low if size.fixed else axis

        return [resolve(axis) for axis in axes]


def _range(domain: Domain | None) -> tuple[float, float] | None:
    if domain is None or not (math.isfinite(domain.low) and math.isfinite(domain.high)):
        return None
    return domain.low, domain.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was read back from a file; None where the format does not say."""

    nodes: int | None = None
    op_histogram: dict[str, int] | None = None
    opsets: dict[str, int] | None = None
    ir_version: int | None = None
    side_files: tuple[str, ...] = ()
    """Names of files beside the artifact that belong to it."""
    notes: tuple[Note, ...] = ()
    """What is known of the file that no run of it can show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: each format file ends with one of these.

    ``write(job, path)`` writes the artifact, reads it back and compares axes and versions with
    what was asked for; it raises ExportError if they differ or the file cannot be made.
    ``unavailable()`` gives the reason and the fix when a package is missing, else None.
    ``imports`` are modules that writing would import in its midst. ``forms``: a recurrence has
    several forms in it; others have the portable one. ``test_data``: the form of ONNX's backend
    tests is written beside it. ``optional``: a module of one's own that it cannot take is no
    failure of a build that does not name the format. ``stamp(path, metadata)`` writes what is said
    of a file into the file, where the format has a place for it.
    """

    name: str
    title: str
    file_name: str
    unavailable: Callable[[], str | None]
    write: Callable[[Job, Path], Written]
    imports: tuple[str, ...] = ()
    forms: bool = False
    test_data: bool = False
    optional: bool = False
    stamp: Callable[[Path, dict[str, str]], None] | None = None
    captured: bool = True
    """Made from the program that torch.export captured."""
