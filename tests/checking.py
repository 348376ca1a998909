"""Has checks look at a session of a test's own, as judging does."""

from collections.abc import Sequence
from pathlib import Path

from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.checks.base import Context, When
from linattn_runtime_checks.checks.performing import perform
from linattn_runtime_checks.contract.golden_pack import Reference
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.results.report import CaseResult, RuntimeResult
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Runtime, Session


def runtime_of(artifact: Artifact) -> Runtime:
    """The first runtime of the table that takes the format."""
    return next(runtime for runtime in RUNTIMES.values() if artifact.format in runtime.formats)


def performed(
    session: Session,
    artifact: Artifact,
    pack: Reference,
    names: Sequence[str] = (),
    cases: Sequence[CaseResult] = (),
) -> RuntimeResult:
    """What the named checks say; without names, all that look at the mode that users run."""
    runtime = runtime_of(artifact)
    context = Context(
        artifact=artifact,
        runtime=runtime,
        path=Path(artifact.path),
        packs=[pack],
        session=session,
        mode=runtime.modes[-1],
        result=RuntimeResult(runtime=runtime.name, cases=list(cases)),
    )
    for check in CHECKS.values():
        if check.name in names or (not names and check.when is When.LAST_MODE):
            perform(check, context)
    return context.result


OF_STREAMS = {"future-leaks", "state-forgotten", "state-kept", "state-fades"}
"""Planted by tests/export/test_streaming.py: no layer here is causal."""
