"""The cost of one artifact on one runtime: certified from its graph, measured from its runs."""

from collections.abc import Callable
from pathlib import Path

from linattn_runtime_checks.cases import cases_for
from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.cost.exponent import asymptotic, fit_peak
from linattn_runtime_checks.cost.memory import peaks
from linattn_runtime_checks.manifest import Artifact
from linattn_runtime_checks.reference import Reference
from linattn_runtime_checks.report.model import CheckResult, Finding, RuntimeResult
from linattn_runtime_checks.runtimes.base import RunFailed, Runtime, Session


def measure_cost(
    result: RuntimeResult,
    artifact: Artifact,
    reference: Reference,
    runtime: Runtime,
    path: Path,
    session: Session,
    opened: Callable[[], Session],
    where: str,
) -> None:
    """Set the certificate and the memory of ``result``; a broken promise is a finding.

    Args:
        result: of ``runtime`` on ``artifact``.
        artifact: its manifest entry, which promises linear or quadratic cost.
        reference: gives the inputs of the measured lengths.
        runtime: certifies, where it can read the graph.
        path: of the file.
        session: of the artifact, which may have run.
        opened: a new session, where one that has run holds memory that would hide a peak.
        where: artifact and runtime, for the messages.
    """
    certificates = runtime.certify(path, artifact, session) if runtime.certify else []
    if certificates:
        result.cost = max(
            certificates, key=lambda c: ("linear", "unknown", "quadratic").index(c.kind)
        )
        check = CheckResult(name="cost", code=Code.PASS)
        if result.cost.kind == "quadratic" and artifact.cost == "linear":
            worst = result.cost.quadratic[0]
            shape = " x ".join(map(str, worst.shape))
            check.code = Code.QUADRATIC_COST
            check.message = f"node {worst.node} ({worst.op}) makes {worst.name}, {shape}"
        elif result.cost.kind == "unknown":
            check.code, check.message = Code.COST_UNKNOWN, result.cost.note
        result.checks.append(check)
        if check.code is not Code.PASS:
            result.findings.append(Finding.of(check.code, f"{where}: cost: {check.message}"))
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
