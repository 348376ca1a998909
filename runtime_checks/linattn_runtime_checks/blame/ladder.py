"""The blame ladder: of all that lies between the module and the failing run, what departs first.

    eager              PyTorch itself, in the artifact's dtype; its error is stored in the pack
    exported program   the capture: the pt2 artifact of the same variant
    torchscript        the TorchScript artifact of the same variant
    onnx               the translation: ONNX Runtime with its optimiser off
    optimizer          ONNX Runtime's graph optimiser, on
    provider           another execution provider than the CPU

Every rung ran the same inputs; a rung departs if it is further from float64 than rounding explains.
"""

import os
from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from linattn_runtime_checks.blame.rungs import RUNGS, Rung
from linattn_runtime_checks.contract.codes import fails_nothing
from linattn_runtime_checks.contract.golden_pack import Case, Rounding
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import SENSITIVITY_FACTOR, K
from linattn_runtime_checks.results.report import CaseResult, RuntimeResult

Results = Mapping[str, tuple[Artifact, Iterable[RuntimeResult]]]


class Step(BaseModel):
    """One rung: ``agrees``, ``departs`` or ``not run``, with the reason where it is not."""

    rung: str
    status: str
    detail: str = ""


class Blame(BaseModel):
    """Why an artifact fails, as far as it can be told."""

    case: str
    steps: list[Step]
    first: str | None
    """The first rung that departs; None if none of those that were run does."""
    message: str


def climb(artifact: Artifact, failed: RuntimeResult, case: Case, results: Results) -> Blame:
    """The ladder of one failing artifact.

    Args:
        artifact: that fails.
        failed: what the runtime on which it fails found.
        case: on which it fails; small, and stored.
        results: artifact id to the artifact and its results, of all that were judged.
    """
    steps = [_eager(case)]
    siblings = [
        (other, list(runs))
        for other, runs in results.values()
        if (other.reference, other.variant) == (artifact.reference, artifact.variant)
    ]
    for rung in RUNGS:
        if rung.formats and artifact.format not in rung.formats:
            continue
        steps.append(_step(rung, case, siblings))
        if rung.last_for(artifact.format, failed.runtime):
            break
    first = next((step for step in steps if step.status == "departs"), None)
    return Blame(
        case=case.name,
        steps=steps,
        first=None if first is None else first.rung,
        message=_message(steps, first, failed),
    )


def _eager(case: Case) -> Step:
    """PyTorch departs where its error is not what moving inputs and weights by a rounding does.

    Of several outputs, the one that departs furthest counts.
    """
    multiple = 0.0
    outputs: list[Case | Rounding] = [case, *case.states.values()]
    for known in outputs:
        error, unit = known.eager_error.row, known.sensitivity.row * SENSITIVITY_FACTOR
        multiple = max(multiple, error / unit if unit else 0.0)
    detail = f"{multiple:.2g}x what a rounding of inputs and weights moves"
    status = "departs" if multiple > K else "agrees"
    return Step(rung="eager", status=status, detail=detail)


def _step(rung: Rung, case: Case, siblings: list[tuple[Artifact, list[RuntimeResult]]]) -> Step:
    runs = [
        run
        for other, results in siblings
        for run in results
        if other.format == rung.format and run.runtime in rung.runtimes
    ]
    if not runs:
        return Step(rung=rung.name, status="not run", detail=rung.absent)
    known = [each for run in runs for each in _of_case(run, case, rung.mode)]
    if not known:
        what = "; ".join(str(f.code) for run in runs for f in run.findings[:1]) or "no such case"
        return Step(rung=rung.name, status="not run", detail=what)
    wrong = [each for each in known if not fails_nothing(each.code)]
    worst = max(wrong or known, key=lambda each: each.multiple or 0.0)
    multiple = "" if worst.multiple is None else f"{worst.multiple:.3g}x the rounding"
    return Step(
        rung=rung.name,
        status="departs" if wrong else "agrees",
        detail=multiple or str(worst.code),
    )


def _of_case(run: RuntimeResult, case: Case, mode: str | None) -> list[CaseResult]:
    """What came of every output."""
    return [each for each in run.cases if each.case == case.name and mode in (None, each.mode)]


def _tf32(failed: RuntimeResult) -> str:
    """The last rung below the provider: products of float32 with 10 bits of mantissa."""
    forced = os.environ.get("NVIDIA_TF32_OVERRIDE")
    if forced == "1":
        return "TF32 is forced on by NVIDIA_TF32_OVERRIDE=1: unset it"
    state = failed.placement.tf32 if failed.placement is not None else None
    return {True: "TF32 is on", False: "TF32 is off", None: "the state of TF32 is not known"}[state]


def _message(steps: list[Step], first: Step | None, failed: RuntimeResult) -> str:
    if first is None:
        return "no rung departs on this case alone"
    before = [step.rung for step in steps[: steps.index(first)] if step.status == "agrees"]
    missing = [step.rung for step in steps[: steps.index(first)] if step.status == "not run"]
    text = f"first departs: {first.rung} ({first.detail})"
    if before:
        text += f"; right before it: {', '.join(before)}"
    if missing:
        text += f"; not run here: {', '.join(missing)}"
    if failed.departure is not None:
        text += f"; node: {failed.departure.message}"
    if first.rung == "provider":
        text += f"; {_tf32(failed)}"
    if failed.optimizers is not None:
        text += f"; optimiser: {failed.optimizers.message}"
    return text
