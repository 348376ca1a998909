"""Jobs for child processes, one artifact of a prepared folder each."""

from pathlib import Path

from folders import DYNAMIC
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.processes.requests import Job


def job(folder: Path, artifact_id: str = DYNAMIC, fault: str | None = None) -> Job:
    (artifact,) = [a for a in read(folder).artifacts if a.id == artifact_id]
    return Job(
        folder=str(folder),
        artifact=artifact,
        runtime="ort-cpu",
        packs=[str(folder / artifact.reference)],
        threads=1,
        fault=fault,
        last_mode_only=True,
        measure_cost=False,
    )
