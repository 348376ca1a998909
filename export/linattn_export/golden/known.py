"""Which case a captured program is fingerprinted on, and what it computes there."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from linattn_export.golden.fingerprints import fingerprints
from linattn_export.options.variants import Variant
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.golden_pack import Case, Known, repeated

_LENGTH = 17


def batch_axes(subject: Subject) -> dict[str, int | list[int] | None]:
    """Which axis is the batch, of inputs and outputs where it is not the first alone."""
    axes = {spec.name: spec.axes for spec in subject.inputs} | subject.outputs
    found: dict[str, int | list[int] | None] = {}
    for name, of in axes.items():
        places = [place for place, axis in enumerate(of) if axis == "batch"]
        if places != [0]:
            found[name] = places if len(places) > 1 else next(iter(places), None)
    return found


def known_of(
    subject: Subject,
    variant: Variant,
    cases: Sequence[Case],
    tensors: Mapping[str, Any],
    programs: Mapping[str, ExportedProgram],
) -> Known | None:
    """Fingerprints on one stored case: small, and if possible of several unequal sequences."""
    mine = [
        case
        for case in cases
        if case.family == "normal"
        and variant.sequence.low <= case.sequence <= variant.sequence.high
        and variant.batch.low <= case.batch <= variant.batch.high
    ]
    if variant.name not in programs or not mine:
        return None
    usual = variant.sequence.clamp(_LENGTH)
    case = min(mine, key=lambda c: (c.batch < 2, c.sequence < usual, c.batch * c.sequence))
    prefix = f"{case.stored}/input/"
    axes = batch_axes(subject)
    stored = {spec.name: tensors[prefix + spec.name] for spec in subject.inputs}
    for name, axis in case.long.inputs.items() if case.long is not None else ():
        stored[name] = stored[name].take(tensors[f"{case.stored}/tokens"], axis=axis)
    inputs = {
        name: torch.from_numpy(repeated(tensor, case.batch, axes.get(name, 0)))
        for name, tensor in stored.items()
    }
    return Known(case=case.name, nodes=fingerprints(programs[variant.name], inputs))
