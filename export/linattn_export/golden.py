"""Makes the golden pack of a subject: inputs, float64 outputs, and what rounding costs on each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from linattn_export.cases import OTHER_LENGTH, CasePlan, plan_cases
from linattn_export.families import SAMPLES
from linattn_export.fingerprints import fingerprints
from linattn_export.inputs import draw
from linattn_export.own.reasons import place_in_own_code
from linattn_export.perturb import PERTURBED_RUNS, moved_inputs, nearby_inputs
from linattn_export.plain_sums import summed_in_order
from linattn_export.states import states_for
from linattn_export.stream import stream_of
from linattn_export.subject import OUTPUT, Subject
from linattn_export.task import task_of
from linattn_export.variants import Variant
from linattn_runtime_checks.errors import ExportError, LinattnError
from linattn_runtime_checks.reference import (
    Case,
    Known,
    ReferenceIndex,
    Rounding,
    StoredError,
    repeated,
    write_reference,
)
from linattn_runtime_checks.verdict import ZERO, Error, error_of

# Runs moved by rounding. One is enough for a long sequence: the largest of thousands of rows is
# an extreme value already.
_PERTURBED_RUNS_LONG, _LONG = 1, 1024
# The longest case of a hostile family in --live has 3 x 96 tokens.
_DRAWS, _MOST_TOKENS = 8, 288
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
    names = list(subject.outputs)
    in_order = subject.origin.module is not None
    for plan in _plans(subject) if plans is None else plans:
        if longest is not None and plan.sequence > longest:
            continue  # no other length exists for it to refuse; the check says so
        inputs = _draw(subject, plan)
        with own_failures(subject, plan):
            expected = run_outputs(reference, inputs, names)
        refused = plan.family == OTHER_LENGTH  # by the live module too; nobody judges its output
        eager_errors = (
            dict.fromkeys(names, ZERO) if refused else _eager_errors(eager(inputs), expected)
        )
        if in_order and not refused:
            plain = summed_in_order(eager, inputs)
            in_order = plain is not None
            for name, another in _eager_errors(plain, expected).items() if in_order else ():
                eager_errors[name] = eager_errors[name].largest(another)
        for run in range(0 if refused else _more_draws(plan, subject)):
            near = nearby_inputs(inputs, run)
            others = _eager_errors(eager(near), run_outputs(reference, near, names))
            for name, another in others.items():
                if math.isfinite(another.row):
                    eager_errors[name] = eager_errors[name].largest(another)
        moved = sensitivities(subject.perturbed[: _runs(plan)], inputs, expected)
        for name, tensor in inputs.items():
            tensors[f"{plan.name}/input/{name}"] = tensor.numpy()
        for name, output in expected.items():
            tensors[f"{plan.name}/output/{name}"] = output
        rounding = {name: _rounding(eager_errors[name], moved[name]) for name in names}
        cases += _cases(plan, rounding, names[0], "" if plans is None else "live-")
    index = ReferenceIndex(
        dtype=dtype,
        cases=cases,
        batch_axes=batch_axes(subject),
        task=task_of(subject, tensors) if plans is None else None,
        origin=subject.origin,
        stream=stream_of(subject, tensors) if plans is None else None,
        fingerprints={
            variant.name: known
            for variant in subject.variants
            if (known := _known(subject, variant, cases, tensors, programs or {})) is not None
        },
    )
    if plans is None and subject.origin.module is None:
        for name, tensor in subject.module.state_dict().items():
            tensors[f"weights/{name}"] = tensor.numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_reference(path, index, tensors)
    return index


def _eager_errors(actual: Any, expected: Mapping[str, Any]) -> dict[str, Error]:
    """Of each output; infinite where eager gives NaN or infinity and float64 does not."""
    found = {}
    for name, output in zip(expected, as_tuple(actual), strict=True):
        mine, truth = output.numpy(), expected[name]
        if np.isfinite(mine).all() or not np.isfinite(truth).all():
            found[name] = error_of(mine, truth)
        else:
            found[name] = Error(row=math.inf, whole=math.inf)
    return found


def as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    """What a module returned, one tensor or several."""
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def _rounding(eager: Error, sensitivity: Error) -> Rounding:
    return Rounding(
        eager_error=StoredError(row=eager.row, whole=eager.whole),
        sensitivity=StoredError(row=sensitivity.row, whole=sensitivity.whole),
    )


def _more_draws(plan: CasePlan, subject: Subject) -> int:
    """How often eager is run on nearby inputs too.

    A hostile input can be so ill-conditioned that one row makes all of the error, and that only the
    rounding inside counts, such as that of nearly equal scores in the thousands before a softmax;
    moved inputs and weights do not show it. One run of eager is one draw of that row's luck, and
    was seen to be 16 times too good. A method that divides each row by its size makes such rows of
    usual inputs too.
    """
    if subject.large:
        return 0  # each run takes seconds
    lucky = plan.hostile or subject.traits.divides_rows
    return _DRAWS if lucky and plan.stored * plan.sequence <= _MOST_TOKENS else 0


def _runs(plan: CasePlan) -> int:
    return _PERTURBED_RUNS_LONG if plan.sequence > _LONG else PERTURBED_RUNS


def sensitivity_of(perturbed: Sequence[nn.Module], inputs: Inputs, expected: Any) -> Error:
    """As :func:`sensitivities`, of a module with one output."""
    return sensitivities(perturbed, inputs, {OUTPUT: expected})[OUTPUT]


def sensitivities(
    perturbed: Sequence[nn.Module], inputs: Inputs, expected: Mapping[str, Any]
) -> dict[str, Error]:
    """The largest change of each float64 output among modules and inputs moved by rounding.

    Args:
        perturbed: float64 modules from :func:`linattn_export.perturb.moved`.
        inputs: as the artifact takes them.
        expected: the float64 outputs that were not moved.
    """
    found = dict.fromkeys(expected, ZERO)
    for run, module in enumerate(perturbed):
        other = run_outputs(module, moved_inputs(inputs, run), list(expected))
        for name, truth in expected.items():
            found[name] = found[name].largest(error_of(other[name], truth))
    return found


def run_outputs(module: nn.Module, inputs: Inputs, names: Sequence[str]) -> dict[str, Any]:
    """The outputs of a float64 module for inputs of any floating dtype, as numpy, by name."""
    with torch.no_grad():
        wide = (t.double() if t.is_floating_point() else t for t in inputs.values())
        outputs = as_tuple(module(*wide))
    return {name: output.numpy() for name, output in zip(names, outputs, strict=True)}


def run_double(module: nn.Module, inputs: Inputs) -> Any:
    """As :func:`run_outputs`, of a module with one output."""
    return run_outputs(module, inputs, [OUTPUT])[OUTPUT]


def _plans(subject: Subject) -> list[CasePlan]:
    """Those of a build: what all models get, and real inputs where the model has some."""
    real = {spec.name: spec for spec in subject.inputs if spec.samples is not None}
    plans = plan_cases(subject.variants, subject.families)
    if not real:
        return plans
    (spec, *_) = real.values()
    assert spec.samples is not None
    sizes = dict(zip(spec.axes, spec.samples.shape, strict=True))
    rows = int(sizes.get("batch", 1))
    return [
        *plans,
        CasePlan(
            family=SAMPLES, stored=rows, sequence=int(sizes.get("sequence", 1)), batches=(rows,)
        ),
    ]


def batch_axes(subject: Subject) -> dict[str, int | None]:
    """Which axis is the batch, of inputs and outputs where it is not the first."""
    axes = {spec.name: spec.axes for spec in subject.inputs} | subject.outputs
    places = {n: a.index("batch") if "batch" in a else None for n, a in axes.items()}
    return {name: place for name, place in places.items() if place != 0}


@contextmanager
def own_failures(subject: Subject, plan: CasePlan) -> Iterator[None]:
    """Say of sizes that the module itself does not take which they are.

    Raises:
        ExportError: the module raised.
    """
    try:
        yield
    except LinattnError:
        raise
    except Exception as error:
        raise ExportError(
            f"{subject.key}: PyTorch itself fails on batch {plan.stored}, sequence "
            f"{plan.sequence}: {type(error).__name__}: {error}{place_in_own_code(error)}; "
            "declare only sizes that the module takes"
        ) from error


def _draw(subject: Subject, plan: CasePlan) -> Inputs:
    sizes = {"batch": plan.stored, "sequence": plan.sequence}
    return draw(
        subject.inputs,
        sizes,
        family=plan.family,
        dtype=subject.dtype,
        seed=subject.seed,
        task=subject.task,
        directions=subject.directions,
        states=states_for(subject, sizes),
    )


def _cases(plan: CasePlan, known: Mapping[str, Rounding], first: str, prefix: str) -> list[Case]:
    return [
        Case(
            name=f"{prefix}{plan.family}-b{batch}-n{plan.sequence}",
            family=plan.family,
            batch=batch,
            sequence=plan.sequence,
            stored=plan.name,
            timed=batch in plan.timed,
            hostile=plan.hostile,
            eager_error=known[first].eager_error,
            sensitivity=known[first].sensitivity,
            states={name: rounding for name, rounding in known.items() if name != first},
        )
        for batch in plan.batches
    ]


def _known(
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
    usual = variant.sequence.clamp(_FINGERPRINT_LENGTH)
    case = min(mine, key=lambda c: (c.batch < 2, c.sequence < usual, c.batch * c.sequence))
    prefix = f"{case.stored}/input/"
    axes = batch_axes(subject)
    stored = {spec.name: tensors[prefix + spec.name] for spec in subject.inputs}
    inputs = {
        name: torch.from_numpy(repeated(tensor, case.batch, axes.get(name, 0)))
        for name, tensor in stored.items()
    }
    return Known(case=case.name, nodes=fingerprints(programs[variant.name], inputs))
