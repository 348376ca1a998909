"""Makes the golden pack of a subject: inputs, float64 outputs, and what rounding costs on each."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from linattn.pieces import in_pieces
from linattn_export.golden.coupled import depends_on_batch
from linattn_export.golden.drawn import draw_case, plans_of
from linattn_export.golden.edges import edge_cases
from linattn_export.golden.guarded import guarded
from linattn_export.golden.known import batch_axes, known_of
from linattn_export.golden.long_cases import Runs, Shortened, shortened
from linattn_export.golden.outside import OutsideDomain, own_failures
from linattn_export.golden.plain_sums import summed_in_order
from linattn_export.golden.rough_gates import with_rough_gates
from linattn_export.golden.stream import stream_of
from linattn_export.golden.task import task_of
from linattn_export.inputs.cases import OTHER_LENGTH, CasePlan
from linattn_export.inputs.families import EDGE
from linattn_export.subjects.perturb import (
    NEARBY_UNITS,
    PERTURBED_RUNS,
    moved_inputs,
    nearby_inputs,
)
from linattn_export.subjects.subject import OUTPUT, Subject
from linattn_models import InputSpec
from linattn_runtime_checks.contract.golden_pack import (
    Case,
    ReferenceIndex,
    Rounding,
    StoredError,
    write_reference,
)
from linattn_runtime_checks.contract.verdict import ZERO, Error, error_of, strays

# Runs moved by rounding. One is enough for a long sequence: the largest of thousands of rows is
# an extreme value already.
_PERTURBED_RUNS_LONG, _LONG = 1, 1024
# The longest case of a hostile family in --live has 3 x 96 tokens.
_DRAWS, _MOST_TOKENS = 8, 288

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
    eager = guarded(subject)
    tensors: dict[str, Any] = {}
    cases: list[Case] = []
    longest = subject.model.max_length(subject.module)
    dtype = str(subject.dtype).removeprefix("torch.")
    names = list(subject.outputs)
    left_out: dict[str, str] = {}
    build = plans is None
    wanted = plans_of(subject) if plans is None else plans
    if _depends_on_batch(subject, reference, eager, wanted):
        wanted = [one for plan in wanted for one in plan.each_batch()]
    drawn = (
        (plan, *_drawn(subject, plan))
        for plan in wanted
        # Above it no other length exists for the module to refuse; the check says so.
        if longest is None or plan.sequence <= longest
    )
    whole = Runs(reference=reference, eager=eager, perturbed=subject.perturbed)
    edges = edge_cases(subject, programs or {}) if build else ()
    for plan, stored, part in chain(drawn, ((*edge, None) for edge in edges)):
        inputs = stored if part is None else part.inputs()
        run = whole if part is None else part.of_runs(whole, names)
        known = dict.fromkeys(names, _rounding(ZERO, ZERO))
        expected: dict[str, Any] = {}
        if plan.family != OTHER_LENGTH:  # the module itself may refuse it; nobody judges its output
            try:
                with own_failures(subject.key, plan, _usual(subject, plan, eager)):
                    expected = run_outputs(run.reference, inputs, names)
                    known = _measured(subject, run, plan, inputs, expected)
            except OutsideDomain as outside:
                left_out[plan.family] = str(outside)
                continue
        for name, tensor in stored.items():
            tensors[f"{plan.name}/input/{name}"] = tensor.numpy()
        tensors |= part.tensors(plan.name) if part is not None else {}
        for name, output in expected.items():
            tensors[f"{plan.name}/output/{name}"] = output
        cases += _cases(plan, known, names[0], "" if build else "live-", part)
    index = ReferenceIndex(
        dtype=dtype,
        cases=cases,
        batch_axes=batch_axes(subject),
        task=task_of(subject, tensors) if plans is None else None,
        origin=subject.origin,
        left_out=left_out,
        stream=stream_of(subject, tensors) if plans is None else None,
        fingerprints={
            variant.name: prints
            for variant in subject.variants
            if (prints := known_of(subject, variant, cases, tensors, programs or {})) is not None
        },
    )
    if plans is None and not subject.is_own:
        for name, tensor in subject.module.state_dict().items():
            tensors[f"weights/{name}"] = tensor.numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_reference(path, index, tensors)
    return index


def _drawn(subject: Subject, plan: CasePlan) -> tuple[Inputs, Shortened | None]:
    """What the pack stores of the inputs, and how, where that is not all of them."""
    part = shortened(subject, plan)
    return (draw_case(subject, plan), None) if part is None else (part.stored, part)


def _depends_on_batch(
    subject: Subject,
    reference: nn.Module,
    eager: Callable[[Inputs], Any],
    plans: Sequence[CasePlan],
) -> bool:
    if not subject.is_own or subject.large:
        return False

    def run(plan: CasePlan, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        with own_failures(subject.key, plan, _usual(subject, plan, eager)):
            return run_outputs(reference, dict(inputs), list(subject.outputs))

    return depends_on_batch(plans, batch_axes(subject), lambda plan: draw_case(subject, plan), run)


def _measured(
    subject: Subject,
    run: Runs,
    plan: CasePlan,
    inputs: Inputs,
    expected: Mapping[str, Any],
) -> dict[str, Rounding]:
    """What rounding costs on each output."""
    names, eager, reference = list(expected), run.eager, run.reference
    eager_errors = _eager_errors(eager(inputs), expected)
    if subject.is_own:
        plain = summed_in_order(eager, inputs)
        for name, another in _eager_errors(plain, expected).items() if plain is not None else ():
            eager_errors[name] = eager_errors[name].largest(another)
    rough = with_rough_gates(subject.module, lambda: eager(inputs)) if plan.hostile else None
    for name, another in _eager_errors(rough, expected).items() if rough is not None else ():
        eager_errors[name] = eager_errors[name].largest(another)
    for draw in range(_more_draws(plan, subject)):
        units = NEARBY_UNITS ** (draw + 1 if plan.family == EDGE else 1)
        near = nearby_inputs(inputs, draw, subject.inputs, units)
        others = _eager_errors(eager(near), run_outputs(reference, near, names))
        for name, another in others.items():
            if math.isfinite(another.row):
                eager_errors[name] = eager_errors[name].largest(another)
    moved = sensitivities(run.perturbed[: _runs(plan)], inputs, expected, subject.inputs)
    return {name: _rounding(eager_errors[name], moved[name]) for name in names}


def _usual(
    subject: Subject, plan: CasePlan, eager: Callable[[Inputs], Any]
) -> Callable[[], object] | None:
    """A run on normal inputs of the sizes of ``plan``; None for a model of ours."""
    if not subject.is_own:
        return None
    return lambda: eager(draw_case(subject, replace(plan, family="normal")))


def _eager_errors(actual: Any, expected: Mapping[str, Any]) -> dict[str, Error]:
    """Of each output; infinite where eager's NaN and infinities are not those of float64."""
    found = {}
    for name, output in zip(expected, as_tuple(actual), strict=True):
        mine, truth = output.numpy(), expected[name]
        lost = strays(mine, truth) is not None
        found[name] = Error(row=math.inf, whole=math.inf) if lost else error_of(mine, truth)
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
    usual inputs too. At the edge of a denominator that is a difference, luck can hold for several
    units of rounding, so the inputs of that family move ever further away.
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
    perturbed: Sequence[nn.Module],
    inputs: Inputs,
    expected: Mapping[str, Any],
    specs: Sequence[InputSpec] = (),
) -> dict[str, Error]:
    """The largest change of each float64 output among modules and inputs moved by rounding.

    Args:
        perturbed: float64 modules from :func:`linattn_export.subjects.perturb.moved`.
        inputs: as the artifact takes them.
        expected: the float64 outputs that were not moved.
        specs: of the inputs, none of which leaves what it may hold.
    """
    found = dict.fromkeys(expected, ZERO)
    for run, module in enumerate(perturbed):
        other = run_outputs(module, moved_inputs(inputs, run, specs), list(expected))
        for name, truth in expected.items():
            found[name] = found[name].largest(error_of(other[name], truth))
    return found


def run_outputs(module: nn.Module, inputs: Inputs, names: Sequence[str]) -> dict[str, Any]:
    """The outputs of a float64 module for inputs of any floating dtype, as numpy, by name."""
    with torch.no_grad(), in_pieces(module):
        wide = [x.double() if x.is_floating_point() else x.clone() for x in inputs.values()]
        outputs = as_tuple(module(*wide))
    return {name: output.numpy() for name, output in zip(names, outputs, strict=True)}


def run_double(module: nn.Module, inputs: Inputs) -> Any:
    """As :func:`run_outputs`, of a module with one output."""
    return run_outputs(module, inputs, [OUTPUT])[OUTPUT]


def _cases(
    plan: CasePlan,
    known: Mapping[str, Rounding],
    first: str,
    prefix: str,
    part: Shortened | None,
) -> list[Case]:
    return [
        Case(
            name=f"{prefix}{plan.kind}-b{batch}-n{plan.sequence}",
            family=plan.family,
            batch=batch,
            sequence=plan.sequence,
            stored=plan.name,
            timed=batch in plan.timed,
            hostile=plan.hostile,
            eager_error=known[first].eager_error,
            sensitivity=known[first].sensitivity,
            states={name: rounding for name, rounding in known.items() if name != first},
            long=None if part is None else part.index,
        )
        for batch in plan.batches
    ]
