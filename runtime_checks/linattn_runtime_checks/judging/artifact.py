"""Judges one artifact on one runtime; runs in a child process (see ``processes``)."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from linattn_runtime_checks.blame.locate import locate, smallest_failing
from linattn_runtime_checks.blame.repro import write_repro
from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.checks.base import Context, Tell, When
from linattn_runtime_checks.checks.inputs import cases_for
from linattn_runtime_checks.checks.loading import LOADING
from linattn_runtime_checks.checks.performing import perform, record
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import EnvironmentProblem, ExportError
from linattn_runtime_checks.contract.golden_pack import Reference, open_reference
from linattn_runtime_checks.faults.sessions import SESSION_FAULTS
from linattn_runtime_checks.judging.memory import measure_memory
from linattn_runtime_checks.processes.requests import Job
from linattn_runtime_checks.results.report import RuntimeResult
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import RunFailed, Runtime, Session, SessionOptions

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
    try:
        if job.fault is None:
            _prove_placement(result, job, runtime, packs[0], path, tell)
        context = _every_mode(result, job, runtime, packs, path, tell)
    except (ExportError, EnvironmentProblem) as error:
        loads = isinstance(error, ExportError)
        code = Code.LOAD_FAILED if loads else Code.PROVIDER_FALLBACK
        message = f"{artifact.id} on {runtime.name}: {error}"
        result.findings.append(LOADING.finding(code, message))
        record(result, LOADING, code, str(error))
        return result
    if all(case.code in _NOT_RUN for case in result.cases):
        return result  # what follows would say the same again
    _turns(When.LAST_MODE, context)
    if job.fault is None and not job.last_mode_only and smallest_failing(result.cases):
        tell("blame")
        if runtime.onnx_graphs:
            locate(result, artifact, packs, path)
        if job.repro is not None:
            made = write_repro(Path(job.repro), result, artifact, packs, context.session, path)
            result.repro = None if made is None else made.name
    if context.measure_cost:
        tell("memory")
        options = SessionOptions(mode=runtime.modes[-1], threads=job.threads)
        opened = partial(runtime.open, path, artifact, options)
        measure_memory(result, artifact, packs[0], runtime, context.session, opened)
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


def _every_mode(
    result: RuntimeResult,
    job: Job,
    runtime: Runtime,
    packs: Sequence[Reference],
    path: Path,
    tell: Tell,
) -> Context:
    """The checks of each mode; returns the context of the last one."""
    modes = runtime.modes[-1:] if job.last_mode_only else runtime.modes
    session: Session | None = None
    context: Context | None = None
    for mode in modes:
        tell(f"loading ({mode})")
        session = context = None  # two sessions at once would hold the weights twice
        options = SessionOptions(mode=mode, threads=job.threads)
        session = runtime.open(path, job.artifact, options)
        if job.fault is not None:
            session = SESSION_FAULTS[job.fault].wrap(session, job.artifact)
        record(result, LOADING, Code.PASS)
        context = Context(
            artifact=job.artifact,
            runtime=runtime,
            path=path,
            packs=packs,
            session=session,
            mode=mode,
            result=result,
            tell=tell,
            planted=job.fault is not None,
            measure_cost=job.measure_cost and job.fault is None,
        )
        if mode == modes[0]:
            _turns(When.FIRST_MODE, context)
        _turns(When.EVERY_MODE, context)
    assert context is not None, "every runtime has a mode"
    return context


def _turns(when: When, context: Context) -> None:
    for check in CHECKS.values():
        if check.when is when:
            perform(check, context)
