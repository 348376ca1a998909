"""The cases of a build, and the inputs of each, for one subject."""

from torch import Tensor

from linattn_export.inputs.cases import CasePlan, plan_cases
from linattn_export.inputs.drawing import draw
from linattn_export.inputs.families import SAMPLES
from linattn_export.subjects.states import states_for
from linattn_export.subjects.subject import Subject


def plans_of(subject: Subject) -> list[CasePlan]:
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


def draw_case(subject: Subject, plan: CasePlan) -> dict[str, Tensor]:
    """The inputs of one case, by name."""
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
