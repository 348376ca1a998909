"""Checks a folder: files, signatures, numbers, refusals, task, latency."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from linattn_runtime_checks import environment
from linattn_runtime_checks.cases import cases_for, check_refusal, run_cases, run_task
from linattn_runtime_checks.errors import EnvironmentProblem, ExitCode, ExportError
from linattn_runtime_checks.integrity import damaged_files
from linattn_runtime_checks.latency import measure
from linattn_runtime_checks.manifest import Artifact, Manifest
from linattn_runtime_checks.progress import progress
from linattn_runtime_checks.reference import MAX_TOKENS_PER_CASE, Reference, open_reference
from linattn_runtime_checks.report.model import (
    ArtifactResult,
    CaseResult,
    Finding,
    Report,
    RuntimeResult,
)
from linattn_runtime_checks.runtimes import choose
from linattn_runtime_checks.runtimes.base import (
    RunFailed,
    Runtime,
    Session,
    SessionOptions,
)
from linattn_runtime_checks.signature import check_signature
from linattn_runtime_checks.timing import Eager, eager_timed, open_timed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What to check; ``eager`` maps ``model/method`` to the live module, where there is one."""

    runtimes: tuple[str, ...] = ()
    latency: bool = True
    quiet: bool = False
    unjudged_is_unverified: bool = False
    eager: Mapping[str, Eager] = field(default_factory=dict)


def check_folder(folder: Path, manifest: Manifest, request: CheckRequest) -> Report:
    """Check every artifact of ``folder`` on every chosen runtime.

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
    )
    damaged = damaged_files(folder, manifest)
    report.findings = [
        Finding(
            code="file_damaged",
            message=f"{path} {what}; build the folder again or restore the file",
            exit_code=ExitCode.EXPORT,
        )
        for path, what in damaged.items()
    ]
    threads = environment.cores()
    with ExitStack() as stack:
        references = {
            path: stack.enter_context(open_reference(folder / path))
            for path in sorted({artifact.reference for artifact in manifest.artifacts})
            if path not in damaged
        }
        with progress("checking", len(manifest.artifacts), quiet=request.quiet) as bar:
            for artifact in manifest.artifacts:
                bar.step(artifact.id)
                result = _blank(artifact)
                report.artifacts.append(result)
                if artifact.path in damaged or artifact.reference in damaged:
                    continue  # its bytes are not what was written: it is not even loaded
                reference = references[artifact.reference]
                for runtime in chosen:
                    if artifact.format in runtime.formats:
                        outcome = _check(folder, artifact, reference, runtime, threads)
                        result.runtimes.append(outcome)
                _verified(result, artifact, reference)
        if request.latency:
            entries = open_timed(folder, manifest, report, references, chosen, threads)
            entries += eager_timed(manifest.artifacts, references, request.eager)
            lengths = len({entry.sequence for entry in entries})
            with progress("timing", lengths, quiet=request.quiet) as bar:
                report.latency = measure(entries, threads, bar)
    report.settle(unjudged_is_unverified=request.unjudged_is_unverified)
    report.seconds = time.monotonic() - start
    return report


def _check(
    folder: Path, artifact: Artifact, reference: Reference, runtime: Runtime, threads: int
) -> RuntimeResult:
    """All modes of one runtime on one artifact."""
    result = RuntimeResult(runtime=runtime.name)
    session: Session | None = None
    for mode in runtime.modes:
        try:
            options = SessionOptions(mode=mode, threads=threads)
            session = runtime.open(folder / artifact.path, artifact, options)
        except (ExportError, EnvironmentProblem) as error:
            code = "load_failed" if isinstance(error, ExportError) else "provider_fallback"
            message = f"{artifact.id} on {runtime.name} ({mode}): {error}"
            result.findings.append(Finding(code=code, message=message, exit_code=error.exit_code))
            return result
        signature = session.signature()
        if signature is not None and mode == runtime.modes[0]:
            result.findings += check_signature(artifact, signature)
        cases = list(run_cases(session, artifact, reference, mode))
        result.cases += cases
        result.findings += _case_findings(artifact, runtime, cases)
    assert session is not None  # every runtime has a mode
    refusal = check_refusal(session, artifact, reference)
    if refusal is not None:
        result.findings.append(refusal)
    try:
        result.task = run_task(session, artifact, reference)
    except RunFailed as error:
        message = f"{artifact.id} on {runtime.name}: held-out data does not run: {error}"
        result.findings.append(
            Finding(code="run_failed", message=message, exit_code=ExitCode.PARITY)
        )
    return result


def _case_findings(
    artifact: Artifact, runtime: Runtime, cases: Sequence[CaseResult]
) -> list[Finding]:
    findings = []
    for code in sorted({case.code for case in cases} - {"pass"}):
        bad = [case for case in cases if case.code == code]
        worst = max(bad, key=lambda case: case.multiple or 0.0)
        lengths = sorted({case.sequence for case in bad})
        message = (
            f"{artifact.id} on {runtime.name} ({worst.mode}): {len(bad)} of {len(cases)} cases, "
            f"lengths {', '.join(map(str, lengths))}; worst {worst.case}: {worst.message}"
        )
        exit_code = ExitCode.UNVERIFIED if code == "inconclusive" else ExitCode.PARITY
        findings.append(Finding(code=code, message=message, exit_code=exit_code))
    return findings


def _blank(artifact: Artifact) -> ArtifactResult:
    return ArtifactResult(
        id=artifact.id,
        model=artifact.model,
        method=artifact.method,
        format=artifact.format,
        variant=artifact.variant,
        bytes=artifact.bytes,
        parameters=artifact.parameters,
        nodes=artifact.nodes,
        declared_sequence=artifact.axis("sequence").declared,
    )


def _verified(result: ArtifactResult, artifact: Artifact, reference: Reference) -> None:
    """Set the verified ranges; a declared range that was not run to its ends is a finding."""
    if result.exit_code is not ExitCode.PASS:
        return
    cases = cases_for(artifact, reference)
    result.lengths = sorted({case.sequence for case in cases})
    result.verified_sequence = (result.lengths[0], result.lengths[-1])
    batches = [case.batch for case in cases]
    result.verified_batch = (min(batches), max(batches))
    # A batch is verified up to its declared end or, for long sequences, as far as the budget of
    # tokens per case goes; the range that was reached is stated either way.
    reach = min(artifact.axis("batch").declared[1], MAX_TOKENS_PER_CASE // result.lengths[0])
    short = {
        "sequence": tuple(artifact.axis("sequence").declared) != result.verified_sequence,
        "batch": result.verified_batch[0] > artifact.axis("batch").declared[0]
        or result.verified_batch[1] < reach,
    }
    for name, verified in (
        ("sequence", result.verified_sequence),
        ("batch", result.verified_batch),
    ):
        if short[name]:
            declared = artifact.axis(name).declared
            message = (
                f"{artifact.id}: axis {name} declares {declared[0]}:{declared[1]} but was "
                f"verified on {verified[0]}:{verified[1]} only"
            )
            result.findings.append(
                Finding(code="axis_unverified_range", message=message, exit_code=ExitCode.PARITY)
            )


def describe_unchecked(manifest: Manifest) -> Report:
    """The report of a folder that was written but not compared."""
    report = Report(
        environment=environment.describe(),
        runtimes=[],
        left_out={},
        artifacts=[_blank(artifact) for artifact in manifest.artifacts],
    )
    report.settle(unjudged_is_unverified=True)
    return report
