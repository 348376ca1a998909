"""Makes the golden pack of a subject: inputs, float64 outputs, and what rounding costs on each."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from linattn import METHODS
from linattn_export.cases import CasePlan, plan_cases
from linattn_export.fingerprints import fingerprints
from linattn_export.inputs import draw
from linattn_export.perturb import PERTURBED_RUNS, moved_inputs, nearby_inputs
from linattn_export.subject import Subject
from linattn_export.variants import Variant
from linattn_runtime_checks.reference import (
    Case,
    Known,
    ReferenceIndex,
    StoredError,
    TaskIndex,
    write_reference,
)
from linattn_runtime_checks.verdict import ZERO, Error, error_of

# Runs moved by rounding. One is enough for a long sequence: the largest of thousands of rows is
# an extreme value already.
_PERTURBED_RUNS_LONG, _LONG = 1, 1024
# The longest case of a hostile family in --live has 3 x 96 tokens.
_DRAWS, _MOST_TOKENS = 8, 288
OUTPUT = "output"
_FINGERPRINT_LENGTH = 17

Inputs = dict[str, Tensor]


def write_golden(
    subject: Subject,
    path: Path,
    plans: Sequence[CasePlan] | None = None,
    programs: Mapping[str, ExportedProgram] | None = None,
) -> ReferenceIndex:
    """Write the pack of ``subject`` to ``path``; returns what it holds.

    Args:
        subject: what to run.
        path: of the pack.
        plans: the cases; None means those of a build, with the task and the weights.
        programs: name of a variant to its captured program, for the fingerprints of its nodes.
    """
    reference = subject.double()
    eager = subject.eager()
    tensors: dict[str, Any] = {}
    cases: list[Case] = []
    longest = subject.model.max_length(subject.module)
    dtype = str(subject.dtype).removeprefix("torch.")
    for plan in plan_cases(subject.variants, subject.families) if plans is None else plans:
        if longest is not None and plan.sequence > longest:
            continue  # no other length exists for it to refuse; the check says so
        inputs = _draw(subject, plan)
        expected = run_double(reference, inputs)
        eager_error = _eager_error(eager(inputs).numpy(), expected)
        for run in range(_more_draws(plan, subject)):
            near = nearby_inputs(inputs, subject.dtype, run)
            another = _eager_error(eager(near).numpy(), run_double(reference, near))
            if math.isfinite(another.row):
                eager_error = eager_error.largest(another)
        sensitivity = sensitivity_of(
            subject.perturbed[: _runs(plan)], inputs, expected, subject.dtype
        )
        for name, tensor in inputs.items():
            tensors[f"{plan.name}/input/{name}"] = tensor.numpy()
        tensors[f"{plan.name}/output/{OUTPUT}"] = expected
        cases += _cases(plan, eager_error, sensitivity, "" if plans is None else "live-")
    index = ReferenceIndex(
        dtype=dtype,
        cases=cases,
        task=_task(subject, tensors) if plans is None else None,
        origin=subject.origin,
        fingerprints={
            variant.name: known
            for variant in subject.variants
            if (known := _known(variant, cases, tensors, programs or {})) is not None
        },
    )
    if plans is None:
        for name, tensor in subject.module.state_dict().items():
            tensors[f"weights/{name}"] = tensor.numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_reference(path, index, tensors)
    return index


def _eager_error(actual: Any, expected: Any) -> Error:
    """Infinite where eager gives NaN or infinity and float64 does not."""
    if np.isfinite(actual).all() or not np.isfinite(expected).all():
        return error_of(actual, expected)
    return Error(row=math.inf, whole=math.inf)


def _more_draws(plan: CasePlan, subject: Subject) -> int:
    """How often eager is run on nearby inputs too.

    A hostile input can be so ill-conditioned that one row makes all of the error, and that only the
    rounding inside counts, such as that of nearly equal scores in the thousands before a softmax;
    moved inputs and weights do not show it. One run of eager is one draw of that row's luck, and
    was seen to be 16 times too good. A method that divides each row by its size makes such rows of
    usual inputs too.
    """
    lucky = plan.hostile or METHODS[subject.method].capabilities.divides_rows
    return _DRAWS if lucky and plan.stored * plan.sequence <= _MOST_TOKENS else 0


def _runs(plan: CasePlan) -> int:
    return _PERTURBED_RUNS_LONG if plan.sequence > _LONG else PERTURBED_RUNS


def sensitivity_of(
    perturbed: Sequence[nn.Module], inputs: Inputs, expected: Any, dtype: torch.dtype
) -> Error:
    """The largest change of the float64 output among modules and inputs moved by rounding.

    Args:
        perturbed: float64 modules from :func:`moved`.
        inputs: as the artifact takes them.
        expected: the float64 output that was not moved.
        dtype: whose rounding unit the inputs move by.
    """
    found = ZERO
    for run, module in enumerate(perturbed):
        other = run_double(module, moved_inputs(inputs, dtype, run))
        found = found.largest(error_of(other, expected))
    return found


def run_double(module: nn.Module, inputs: Inputs) -> Any:
    """The output of a float64 module for inputs of any floating dtype, as numpy."""
    with torch.no_grad():
        wide = (t.double() if t.is_floating_point() else t for t in inputs.values())
        return module(*wide).numpy()


def _draw(subject: Subject, plan: CasePlan) -> Inputs:
    return draw(
        subject.inputs,
        {"batch": plan.stored, "sequence": plan.sequence},
        family=plan.family,
        dtype=subject.dtype,
        seed=subject.seed,
        task=subject.task,
        directions=subject.directions,
    )


def _cases(plan: CasePlan, eager_error: Error, sensitivity: Error, prefix: str) -> list[Case]:
    return [
        Case(
            name=f"{prefix}{plan.family}-b{batch}-n{plan.sequence}",
            family=plan.family,
            batch=batch,
            sequence=plan.sequence,
            stored=plan.name,
            timed=batch in plan.timed,
            hostile=plan.hostile,
            eager_error=StoredError(row=eager_error.row, whole=eager_error.whole),
            sensitivity=StoredError(row=sensitivity.row, whole=sensitivity.whole),
        )
        for batch in plan.batches
    ]


def _known(
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
    usual = variant.sequence.clamp(_FINGERPRINT_LENGTH)
    case = min(mine, key=lambda c: (c.batch < 2, c.sequence < usual, c.batch * c.sequence))
    prefix = f"{case.stored}/input/"
    places = np.arange(case.batch)
    inputs = {
        name.removeprefix(prefix): torch.from_numpy(tensor[places % len(tensor)])
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    return Known(case=case.name, nodes=fingerprints(programs[variant.name], inputs))


def _task(subject: Subject, tensors: dict[str, Any]) -> TaskIndex | None:
    task = subject.task
    if task is None:
        return None
    tensors["task/inputs"] = task.inputs.to(subject.dtype).numpy()
    tensors["task/labels"] = task.labels.numpy()
    output = run_double(subject.double(), {task.input_name: task.inputs.to(subject.dtype)})
    right = torch.from_numpy(output).argmax(dim=-1) == task.labels
    return TaskIndex(
        metric=task.metric,
        input_name=task.input_name,
        description=task.description,
        reference_score=float(right.double().mean()),
    )
