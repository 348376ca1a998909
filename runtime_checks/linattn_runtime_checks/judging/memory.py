"""The peak memory of one artifact on one runtime, at lengths that show how it grows."""

from collections.abc import Callable

from linattn_runtime_checks.checks.inputs import cases_for
from linattn_runtime_checks.contract.golden_pack import Reference
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.cost.exponent import asymptotic, fit_peak
from linattn_runtime_checks.cost.memory import peaks
from linattn_runtime_checks.results.report import RuntimeResult
from linattn_runtime_checks.runtimes.base import RunFailed, Runtime, Session


def measure_memory(
    result: RuntimeResult,
    artifact: Artifact,
    reference: Reference,
    runtime: Runtime,
    session: Session,
    opened: Callable[[], Session],
) -> None:
    """Set the peak memory of ``result``, at the lengths of the timed cases.

    Args:
        result: of ``runtime`` on ``artifact``.
        artifact: its manifest entry.
        reference: gives the inputs of the measured lengths.
        runtime: says whether a session that has run keeps memory.
        session: of the artifact, which may have run.
        opened: a new session, where one that has run holds memory that would hide a peak.
    """
    low, high = artifact.axis("sequence").declared
    if low == high or artifact.side_files:
        return  # a second session would hold gigabytes of weights twice
    inputs = {
        case.sequence: case
        for case in cases_for(artifact, reference)
        if case.timed and not case.hostile
    }
    fresh = opened() if runtime.keeps_memory else session
    try:
        found = peaks(lambda length: fresh.run(reference.inputs(inputs[length])), sorted(inputs))
    except RunFailed:
        return  # the cases, which hold these inputs, have said so
    if found is not None:
        result.peak_bytes = found
        result.memory_exponent = fit_peak(asymptotic(found))
