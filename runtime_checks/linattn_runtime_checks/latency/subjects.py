"""What is timed: every artifact that passed, at its lengths, and the live modules beside them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from linattn_runtime_checks.checks.inputs import cases_for
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.golden_pack import (
    MAX_TOKENS_PER_CASE,
    Case,
    Reference,
    open_reference,
)
from linattn_runtime_checks.contract.manifest import Artifact, Manifest
from linattn_runtime_checks.latency.schedule import Timed
from linattn_runtime_checks.latency.turns import time_runs
from linattn_runtime_checks.processes.turns import Times, Turn
from linattn_runtime_checks.results.latency import LatencySubject, live_variant
from linattn_runtime_checks.results.report import (
    Report,
)
from linattn_runtime_checks.runtimes.base import Tensors

Eager = Callable[[Tensors], object]
Take = Callable[[Turn], Times]


@contextmanager
def subjects(
    folder: Path,
    manifest: Manifest,
    report: Report,
    eager: Mapping[str, Eager],
    take: Take,
    threads: int,
) -> Iterator[list[Timed]]:
    """All that is to be timed.

    Args:
        folder: of the manifest.
        manifest: what is in it.
        report: with the verdicts; what does not pass is not timed.
        eager: ``model/method`` to the live module, which is timed in this process.
        take: takes a turn of an artifact, in another.
        threads: within one operator.
    """
    passed = [
        (artifact, result)
        for artifact, result in zip(manifest.artifacts, report.artifacts, strict=True)
        if result.exit_code is ExitCode.PASS
    ]
    with ExitStack() as stack:
        packs = {
            path: stack.enter_context(open_reference(folder / path))
            for path in sorted({artifact.reference for artifact, _ in passed})
        }
        entries = []
        modules: dict[tuple[str, str], Timed] = {}
        for artifact, result in passed:
            for case in timed_cases(artifact, packs[artifact.reference]):
                for outcome in result.runtimes:
                    turn = partial(_turn, take, folder, artifact, outcome.runtime, case, threads)
                    entries.append(_entry(artifact, outcome.runtime, case, turn))
                if artifact.subject in eager:
                    call = _eager_turn(eager[artifact.subject], packs[artifact.reference], case)
                    modules[artifact.subject, case.name] = _entry(artifact, "eager", case, call)
        yield entries + [modules[key] for key in sorted(modules)]


def timed_cases(artifact: Artifact, reference: Reference) -> list[Case]:
    """The cases that are timed, one for each length and batch; shortest first."""
    chosen: dict[tuple[int, int], Case] = {}
    for case in cases_for(artifact, reference):
        if case.timed:
            chosen.setdefault((case.sequence, case.batch), case)
    return [chosen[key] for key in sorted(chosen)]


def _turn(
    take: Take,
    folder: Path,
    artifact: Artifact,
    runtime: str,
    case: Case,
    threads: int,
    uncounted: int,
    counted: int,
) -> Times:
    return take(
        Turn(
            folder=str(folder.resolve()),
            artifact=artifact,
            runtime=runtime,
            case=case.name,
            threads=threads,
            uncounted=uncounted,
            counted=counted,
            forget=_forgets(case),
        )
    )


def _forgets(case: Case) -> bool:
    """Whether what a session keeps of a run of ``case`` would crowd out the others."""
    return case.batch * case.sequence > MAX_TOKENS_PER_CASE


def _eager_turn(module: Eager, reference: Reference, case: Case) -> Callable[[int, int], Times]:
    inputs = reference.inputs(case)

    def turn(uncounted: int, counted: int) -> Times:
        return Times(seconds=time_runs(lambda: module(inputs), uncounted, counted))

    return turn


def _entry(
    artifact: Artifact, runtime: str, case: Case, turn: Callable[[int, int], Times]
) -> Timed:
    eager = runtime == "eager"
    return Timed(
        owner=f"{artifact.subject if eager else artifact.id} on {runtime}",
        subject=LatencySubject(
            model=artifact.model,
            method=artifact.method,
            format="eager" if eager else artifact.format,
            variant=live_variant(artifact.entry) if eager else artifact.variant,
            runtime=runtime,
            batch=case.batch,
            sequence=case.sequence,
        ),
        turn=turn,
        cold=not eager and _forgets(case),
    )
