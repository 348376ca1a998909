"""What is timed: every artifact that passed, at its lengths, and the live modules beside them."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from linattn_runtime_checks.cases import cases_for
from linattn_runtime_checks.errors import ExitCode
from linattn_runtime_checks.latency import Timed
from linattn_runtime_checks.manifest import Artifact, Manifest
from linattn_runtime_checks.reference import Reference
from linattn_runtime_checks.report.model import Report
from linattn_runtime_checks.runtimes.base import Runtime, SessionOptions, Tensors

Eager = Callable[[Tensors], object]


def open_timed(
    folder: Path,
    manifest: Manifest,
    report: Report,
    references: Mapping[str, Reference],
    runtimes: Sequence[Runtime],
    threads: int,
) -> list[Timed]:
    """Open every artifact that passed in the mode that users run.

    The sessions are new: those that were checked have grown with their largest case. The time to
    create each is noted in ``report``.
    """
    by_name = {runtime.name: runtime for runtime in runtimes}
    inputs_of = _InputCache()
    entries = []
    for artifact, result in zip(manifest.artifacts, report.artifacts, strict=True):
        if result.exit_code is not ExitCode.PASS:
            continue
        for outcome in result.runtimes:
            runtime = by_name[outcome.runtime]
            options = SessionOptions(mode=runtime.modes[-1], threads=threads)
            start = time.perf_counter()
            session = runtime.open(folder / artifact.path, artifact, options)
            outcome.session_ms = (time.perf_counter() - start) * 1e3
            for sequence, inputs in inputs_of(artifact, references[artifact.reference]):
                call = partial(session.run, inputs)
                entries.append(_entry(artifact, runtime.name, sequence, inputs, call))
    return entries


def eager_timed(
    artifacts: Sequence[Artifact],
    references: Mapping[str, Reference],
    eager: Mapping[str, Eager],
) -> list[Timed]:
    """The live modules at every length at which an artifact of theirs is timed."""
    found: dict[tuple[str, int], Timed] = {}
    for artifact in artifacts:
        call = eager.get(artifact.subject)
        if call is None or artifact.reference not in references:
            continue
        for sequence, inputs in timed_inputs(artifact, references[artifact.reference]):
            entry = _entry(artifact, "eager", sequence, inputs, partial(call, inputs))
            found[artifact.subject, sequence] = entry
    return [found[key] for key in sorted(found)]


class _InputCache:
    """:func:`timed_inputs`, keeping one copy of what several artifacts share."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], Tensors] = {}

    def __call__(self, artifact: Artifact, reference: Reference) -> list[tuple[int, Tensors]]:
        return [
            (sequence, self._found.setdefault((artifact.reference, sequence), inputs))
            for sequence, inputs in timed_inputs(artifact, reference)
        ]


def timed_inputs(artifact: Artifact, reference: Reference) -> list[tuple[int, Tensors]]:
    """One input for each length that is timed, of the smallest batch there is."""
    chosen: dict[int, Tensors] = {}
    for case in sorted(cases_for(artifact, reference), key=lambda case: case.batch):
        if case.timed and case.sequence not in chosen:
            chosen[case.sequence] = reference.inputs(case)
    return sorted(chosen.items())


def _entry(
    artifact: Artifact,
    runtime: str,
    sequence: int,
    inputs: Tensors,
    call: Callable[[], object],
) -> Timed:
    eager = runtime == "eager"
    return Timed(
        model=artifact.model,
        method=artifact.method,
        format="eager" if eager else artifact.format,
        variant="dynamic" if eager else artifact.variant,
        runtime=runtime,
        batch=len(next(iter(inputs.values()))),
        sequence=sequence,
        call=call,
    )
