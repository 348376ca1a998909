"""Checks a folder: files, then every artifact on every runtime, then latency."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from linattn_runtime_checks.blame.ladder import climb
from linattn_runtime_checks.blame.locate import smallest_failing
from linattn_runtime_checks.checks.capture import CAPTURE
from linattn_runtime_checks.checks.files import FILES
from linattn_runtime_checks.checks.judged import JUDGED
from linattn_runtime_checks.checks.verified_range import verify_ranges
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import holder, open_reference
from linattn_runtime_checks.contract.integrity import damaged_files
from linattn_runtime_checks.contract.manifest import Artifact, Manifest
from linattn_runtime_checks.judging.baseline import compare
from linattn_runtime_checks.judging.early import HowToJudge, Judging
from linattn_runtime_checks.latency.run import time_folder
from linattn_runtime_checks.latency.subjects import Eager
from linattn_runtime_checks.processes.child import Limits
from linattn_runtime_checks.processes.progress import progress
from linattn_runtime_checks.processes.requests import Job
from linattn_runtime_checks.results import environment
from linattn_runtime_checks.results.report import ArtifactResult, Finding, Report, RuntimeResult
from linattn_runtime_checks.runtimes import choose


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What to check.

    Attributes:
        runtimes: names in RUNTIMES; empty means all that are available.
        latency: measure latency.
        quiet: say nothing on stderr.
        unjudged_is_unverified: an artifact that no runtime compared makes the whole UNVERIFIED.
        eager: ``model/method`` to the live module, where there is one.
        more_packs: path of a golden pack, as in the manifest, to further packs for its artifacts.
        limits: of the child processes.
        isolate: judge in child processes; otherwise here, where a debugger can follow.
        repro: folder for a program that shows each failure; None for none.
        baseline: an earlier report to compare sizes and latencies with; None for none.
    """

    runtimes: tuple[str, ...] = ()
    latency: bool = True
    quiet: bool = False
    unjudged_is_unverified: bool = False
    eager: Mapping[str, Eager] = field(default_factory=dict)
    more_packs: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    isolate: bool = True
    repro: Path | None = None
    baseline: Report | None = None


def check_folder(
    folder: Path, manifest: Manifest, request: CheckRequest, begun: Judging | None = None
) -> Report:
    """Check every artifact of ``folder`` on every chosen runtime.

    Args:
        folder: of the manifest.
        manifest: of the folder.
        request: what to check.
        begun: judging that every artifact was added to when it was written; None starts it here.

    Raises:
        UsageError: an unknown runtime.
        EnvironmentProblem: a runtime that was asked for is not available.
    """
    start = time.monotonic()
    chosen, left_out = choose(request.runtimes)
    report = Report(
        environment=environment.describe(),
        runtimes=[runtime.name for runtime in chosen],
        left_out=left_out,
        not_made=manifest.not_made,
        artifacts=[_blank(artifact) for artifact in manifest.artifacts],
    )
    damaged = damaged_files(folder, manifest)
    report.findings = [
        FILES.finding(
            Code.FILE_DAMAGED, f"{path} {what}; build the folder again or restore the file"
        )
        for path, what in damaged.items()
    ]
    # What is damaged is not even loaded: its bytes are not what was written.
    whole = [a for a in manifest.artifacts if not a.needs() & set(damaged)]
    results = {artifact.id: artifact for artifact in report.artifacts}
    outcomes = _outcomes(begun, folder, whole, request)
    for job, outcome in outcomes:
        results[job.artifact.id].runtimes.append(outcome)
    _blame([job for job, _ in outcomes], report)
    for artifact in whole:
        results[artifact.id].findings += [
            # Not CAPTURE.finding: a manifest of another version may note what this one does not.
            Finding.of(note.code, f"{artifact.id}: {note.message}", check=CAPTURE.name)
            for note in artifact.notes
        ]
        if not any(artifact.format in runtime.formats for runtime in chosen):
            message = f"{artifact.id}: none of the runtimes used runs {artifact.format} files"
            results[artifact.id].findings.append(JUDGED.finding(Code.NOT_JUDGED, message))
        verify_ranges(results[artifact.id], artifact)
    timed = partial(
        time_folder,
        folder,
        manifest,
        report,
        threads=environment.cores(),
        limits=request.limits,
        isolate=request.isolate,
        quiet=request.quiet,
    )
    if request.latency:
        report.latency = timed(request.eager)
    if request.baseline is not None:
        report.against = compare(
            report,
            request.baseline,
            lambda keys: timed({}, only=lambda entry: entry.subject.key in keys),
        )
    report.settle(unjudged_is_unverified=request.unjudged_is_unverified)
    report.seconds = time.monotonic() - start
    return report


def _blame(jobs: Sequence[Job], report: Report) -> None:
    """Say of every result with wrong numbers what departs first."""
    artifacts = {job.artifact.id: job.artifact for job in jobs}
    packs = {job.artifact.id: job.packs for job in jobs}
    results = {a.id: (artifacts[a.id], a.runtimes) for a in report.artifacts if a.id in artifacts}
    for artifact, runs in results.values():
        for run in runs:
            failing = smallest_failing(run.cases)
            if failing is not None:
                with ExitStack() as stack:
                    opened = [
                        stack.enter_context(open_reference(Path(path)))
                        for path in packs[artifact.id]
                    ]
                    found_in = holder(opened, failing.case)
                if found_in is not None:
                    run.blame = climb(artifact, run, found_in[1], results).message


def judging(
    folder: Path, request: CheckRequest, artifacts: int, soon: Sequence[str] = ()
) -> Judging:
    """What judges the artifacts of ``folder`` on the runtimes of the request; see Judging."""
    chosen, _ = choose(request.runtimes)
    how = HowToJudge(
        folder=folder,
        runtimes=chosen,
        limits=request.limits,
        isolate=request.isolate,
        more_packs=request.more_packs,
        repro=request.repro,
    )
    return Judging(how, artifacts, soon)


def _outcomes(
    begun: Judging | None, folder: Path, whole: Sequence[Artifact], request: CheckRequest
) -> list[tuple[Job, RuntimeResult]]:
    with ExitStack() as stack:
        if begun is None:
            begun = stack.enter_context(judging(folder, request, len(whole)))
            for artifact in whole:
                begun.add(artifact)
        with progress("checking", len(begun), quiet=request.quiet) as bar:
            return list(begun.results(lambda job: bar.step(job.artifact.id)))


def _blank(artifact: Artifact) -> ArtifactResult:
    return ArtifactResult(
        id=artifact.id,
        model=artifact.model,
        method=artifact.method,
        format=artifact.format,
        variant=artifact.variant,
        entry=artifact.entry,
        form=artifact.form,
        bytes=artifact.bytes,
        parameters=artifact.parameters,
        nodes=artifact.nodes,
        declared_sequence=artifact.axis("sequence").declared,
        declared_batch=artifact.axis("batch").declared,
        padding=artifact.padding,
    )


def describe_unchecked(manifest: Manifest) -> Report:
    """The report of a folder that was written but not compared."""
    report = Report(
        environment=environment.describe(),
        runtimes=[],
        left_out={},
        not_made=manifest.not_made,
        artifacts=[_blank(artifact) for artifact in manifest.artifacts],
    )
    report.settle(unjudged_is_unverified=True)
    return report
