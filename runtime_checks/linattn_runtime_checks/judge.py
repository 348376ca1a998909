"""Judges one artifact on one runtime; runs in a child process (see ``isolation``)."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from linattn_runtime_checks.blame.locate import locate, smallest_failing
from linattn_runtime_checks.blame.repro import write_repro
from linattn_runtime_checks.cases import cases_for, check_refusal, run_cases
from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.cost.measure import measure_cost
from linattn_runtime_checks.errors import EnvironmentProblem, ExportError
from linattn_runtime_checks.faults.sessions import SESSION_FAULTS
from linattn_runtime_checks.frozen import frozen_axes
from linattn_runtime_checks.invariances import check_invariances
from linattn_runtime_checks.isolation.job import Job
from linattn_runtime_checks.manifest import Artifact
from linattn_runtime_checks.reference import Reference, open_reference
from linattn_runtime_checks.report.model import CaseResult, Finding, RuntimeResult
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import RunFailed, Runtime, Session, SessionOptions
from linattn_runtime_checks.signature import check_signature, static_axes
from linattn_runtime_checks.streaming import check_pieces
from linattn_runtime_checks.tasks import check_labels, check_task, run_task

Tell = Callable[[str], None]
_NOT_RUN = (Code.RUN_FAILED, Code.OUTPUT_MISSING)


def judge(job: Job, tell: Tell) -> RuntimeResult:
    """Everything that one runtime says of one artifact.

    Args:
        job: what to judge.
        tell: told of every step before it is taken.
    """
    runtime = RUNTIMES[job.runtime]
    with ExitStack() as stack:
        packs = [stack.enter_context(open_reference(Path(path))) for path in job.packs]
        return _judge(job, runtime, packs, tell)


def _judge(job: Job, runtime: Runtime, packs: Sequence[Reference], tell: Tell) -> RuntimeResult:
    artifact, path = job.artifact, Path(job.folder) / job.artifact.path
    result = RuntimeResult(runtime=runtime.name)
    where = f"{artifact.id} on {runtime.name}"
    try:
        if job.fault is None:
            _prove_placement(result, job, runtime, packs[0], path, tell)
        session = _compare(result, job, runtime, packs, path, tell)
    except (ExportError, EnvironmentProblem) as error:
        loads = isinstance(error, ExportError)
        code = Code.LOAD_FAILED if loads else Code.PROVIDER_FALLBACK
        result.findings.append(Finding.of(code, f"{where}: {error}"))
        return result
    if all(case.code in _NOT_RUN for case in result.cases):
        return result  # what follows would say the same again
    _without_reference(result, artifact, packs[0], session, where, tell)
    if job.fault is None and not job.last_mode_only and smallest_failing(result.cases):
        tell("blame")
        if artifact.format == "onnx":
            locate(result, artifact, packs, path)
        if job.repro is not None:
            made = write_repro(Path(job.repro), result, artifact, packs, session, path)
            result.repro = None if made is None else made.name
    if job.measure_cost and job.fault is None:
        tell("cost")
        options = SessionOptions(mode=runtime.modes[-1], threads=job.threads)
        opened = partial(runtime.open, path, artifact, options)
        measure_cost(result, artifact, packs[0], runtime, path, session, opened, where)
    return result


def _prove_placement(
    result: RuntimeResult,
    job: Job,
    runtime: Runtime,
    reference: Reference,
    path: Path,
    tell: Tell,
) -> None:
    """First of all, so that no number is taken on a provider that was not asked for."""
    cases = cases_for(job.artifact, reference)
    if runtime.placed is None or not cases:
        return
    tell("placement of the nodes")
    smallest = min(cases, key=lambda case: case.batch * case.sequence)
    options = SessionOptions(mode=runtime.modes[-1], threads=job.threads)
    try:
        inputs = reference.inputs(smallest)
        result.placement = runtime.placed(path, job.artifact, options, inputs)
    except RunFailed:
        pass  # the same case is run again among the others, and says so


def _compare(
    result: RuntimeResult,
    job: Job,
    runtime: Runtime,
    packs: Sequence[Reference],
    path: Path,
    tell: Tell,
) -> Session:
    """Signature and all cases, in every mode; returns the session of the last one."""
    artifact, where = job.artifact, f"{job.artifact.id} on {runtime.name}"
    static: set[str] = set()
    modes = runtime.modes[-1:] if job.last_mode_only else runtime.modes
    session: Session | None = None
    for mode in modes:
        tell(f"loading ({mode})")
        session = None  # two at once would hold the weights twice
        options = SessionOptions(mode=mode, threads=job.threads)
        session = runtime.open(path, artifact, options)
        if job.fault is not None:
            session = SESSION_FAULTS[job.fault].wrap(session, artifact)
        signature = session.signature()
        if signature is not None and mode == modes[0]:
            result.findings += check_signature(artifact, signature)
            static = static_axes(artifact, signature)
        told = partial(_tell_case, tell, mode)
        judged = [(pack, list(run_cases(session, artifact, pack, mode, told))) for pack in packs]
        cases = [outcome for _, outcomes in judged for outcome in outcomes]
        if runtime.excused is not None and job.fault is None:  # a planted session is no kernel
            cases = runtime.excused(path, artifact, judged, session, told)
        result.cases += cases
        result.findings += frozen_axes(artifact, cases, where, labelled_static=static)
        result.findings += _case_findings(where, cases)
    assert session is not None, "every runtime has a mode"
    return session


def _without_reference(
    result: RuntimeResult,
    artifact: Artifact,
    reference: Reference,
    session: Session,
    where: str,
    tell: Tell,
) -> None:
    """Invariances, refused lengths and held-out data."""
    tell("checks that need no reference")
    try:
        result.checks = check_invariances(session, artifact, reference, result.cases)
        pieces = check_pieces(session, artifact, reference)
        result.checks += [pieces] if pieces is not None else []
    except RunFailed as error:
        result.findings.append(Finding.of(Code.RUN_FAILED, f"{where}: {error}"))
    for check in result.checks:
        if check.code is not Code.PASS:
            message = f"{where}: {check.name}: {check.message}"
            result.findings.append(Finding.of(check.code, message))
    tell("other lengths")
    refusal = check_refusal(session, artifact, reference)
    if refusal is not None:
        result.findings.append(refusal)
    tell("held-out data")
    try:
        result.task = run_task(session, artifact, reference)
    except (RunFailed, ExportError) as error:
        message = f"{where}: held-out data does not run: {error}"
        result.findings.append(Finding.of(Code.RUN_FAILED, message))
    fell = None if result.task is None else check_task(result.task, where)
    named = check_labels(session, artifact, reference)
    result.findings += [finding for finding in (fell, named) if finding is not None]


def _tell_case(tell: Tell, mode: str, name: str) -> None:
    tell(f"{name} ({mode})")


def _case_findings(where: str, cases: Sequence[CaseResult]) -> list[Finding]:
    findings = []
    for code in sorted({case.code for case in cases} - {Code.PASS}):
        bad = [case for case in cases if case.code == code]
        worst = max(bad, key=lambda case: case.multiple or 0.0)
        lengths = sorted({case.sequence for case in bad})
        message = (
            f"{where} ({worst.mode}): {len(bad)} of {len(cases)} cases, lengths "
            f"{', '.join(map(str, lengths))}; worst {worst.case}: {worst.message}"
        )
        findings.append(Finding.of(code, message))
    return findings
