"""The self-test: plants faults in copies of a folder's artifacts and demands that each is rejected.

Nothing of the folder is changed; every damaged copy lives in a temporary folder. A fault counts as
rejected at a length when the gate finds fault with a run of that length, or with the artifact as a
whole (its signature, its provider, its process), and a check that names the fault is among those
that did. The control is an unchanged copy, which must pass.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, computed_field

from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.checks.inputs import cases_for
from linattn_runtime_checks.contract.codes import CODES, Code, fails_nothing
from linattn_runtime_checks.contract.errors import EnvironmentProblem, ExitCode
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.manifest import Artifact, Manifest
from linattn_runtime_checks.faults.editing import Graph
from linattn_runtime_checks.faults.graphs import CONTROL, GRAPH_FAULTS, GraphFault
from linattn_runtime_checks.faults.mathematics import weight_moved
from linattn_runtime_checks.faults.sessions import SESSION_FAULTS
from linattn_runtime_checks.processes.child import Limits
from linattn_runtime_checks.processes.pool import children, run_jobs
from linattn_runtime_checks.processes.progress import progress
from linattn_runtime_checks.processes.requests import Job
from linattn_runtime_checks.results import environment
from linattn_runtime_checks.results.report import CaseResult, RuntimeResult
from linattn_runtime_checks.runtimes import choose
from linattn_runtime_checks.runtimes.base import Runtime

_ENDS_THE_PROCESS = ("crash", "hang", "out-of-memory", "memory-hog")
_TIGHT = Limits(seconds=20.0, gibibytes=4.0)
_FACTORS = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)
_PLAIN = ("normal", "right-padding", "left-padding", "inside-padding", "one-token")


class Planted(BaseModel):
    """One fault in one artifact, and what the gate said."""

    fault: str
    artifact: str
    runtime: str
    codes: list[Code]
    checks: list[str] = []
    """That found fault with it."""
    lengths: list[int]
    """At which it must be rejected."""
    missed: list[int]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rejected(self) -> bool:
        """At every length."""
        return not self.missed


class Smallest(BaseModel):
    """The smallest change of a single element of a weight that is rejected at every length."""

    artifact: str
    relative_change: float | None


class SelfTest(BaseModel):
    """What was planted and what was missed."""

    planted: list[Planted]
    false_alarms: list[str]
    smallest: list[Smallest]
    seconds: float = 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> ExitCode:
        """PARITY if the gate missed a fault or rejected a control."""
        missed = any(not fault.rejected for fault in self.planted)
        return ExitCode.PARITY if missed or self.false_alarms else ExitCode.PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """A job, and what it must show."""

    fault: str
    job: Job
    from_length: int = 1
    families: tuple[str, ...] = ()
    hidden_at: int | None = None
    change: float | None = None


def self_test(
    folder: Path, manifest: Manifest, runtimes: tuple[str, ...], *, quiet: bool
) -> SelfTest:
    """Plant every fault that has a place in the artifacts of ``folder``.

    Graph faults go into every ONNX artifact, faults of the runtime into one artifact of each
    format and variant.

    Raises:
        EnvironmentProblem: the onnx package, which plants them, or every runtime is missing.
    """
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise EnvironmentProblem(
            "`self_test` changes ONNX graphs and needs the onnx package; run: pip install onnx"
        ) from error
    start = time.monotonic()
    chosen, _ = choose(runtimes)
    with tempfile.TemporaryDirectory(prefix="linattn-self-test-") as temporary:
        trials = list(_trials(folder, manifest, chosen, Path(temporary)))
        if not trials:
            raise EnvironmentProblem(
                f"no runtime here runs an artifact of {folder}; 'linattn-export list' says which "
                "runtimes there are and what they need"
            )
        with progress("planting", len(trials), quiet=quiet) as bar:
            slow = [trial for trial in trials if trial.fault not in _ENDS_THE_PROCESS]
            ends = [trial for trial in trials if trial.fault in _ENDS_THE_PROCESS]
            results = run_jobs([t.job for t in slow], Limits(), lambda job: bar.step(job.folder))
            results += run_jobs([t.job for t in ends], _TIGHT, lambda job: bar.step(job.folder))
    found = _summed(list(zip(slow + ends, results, strict=True)))
    found.seconds = time.monotonic() - start
    return found


def _trials(
    folder: Path, manifest: Manifest, runtimes: Sequence[Runtime], temporary: Path
) -> Iterator[_Trial]:
    seen: set[tuple[str, str]] = set()
    for artifact in manifest.artifacts:
        for runtime in runtimes:
            if artifact.format not in runtime.formats:
                continue
            if runtime.onnx_graphs and not artifact.side_files:
                yield from _graph_trials(folder, artifact, runtime, temporary)
            if (runtime.name, artifact.variant) not in seen:
                yield from _session_trials(
                    folder, artifact, runtime, first=runtime.name not in {name for name, _ in seen}
                )
                seen.add((runtime.name, artifact.variant))


def _graph_trials(
    folder: Path, artifact: Artifact, runtime: Runtime, temporary: Path
) -> Iterator[_Trial]:
    import onnx

    def planted(fault: GraphFault, name: str) -> Job | None:
        model = onnx.load(folder / artifact.path)
        if not fault.plant(Graph(model), artifact):
            return None
        place = temporary / name
        (place / artifact.path).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, place / artifact.path)
        return _job(place, folder, artifact, runtime, None)

    with open_reference(folder / artifact.reference) as pack:
        families = {case.family for case in cases_for(artifact, pack)}
    for fault in (CONTROL, *GRAPH_FAULTS.values()):
        if fault.families and not families & set(fault.families):
            continue  # no input of the pack shows it
        job = planted(fault, fault.name)
        if job is not None:
            hidden = artifact.axis("sequence").captured if fault.captured else None
            yield _Trial(
                fault=fault.name,
                job=job,
                from_length=fault.from_length,
                families=fault.families,
                hidden_at=hidden,
            )
    for factor in _FACTORS:
        fault = GraphFault(name="", title="", plant=weight_moved(1 + factor))
        job = planted(fault, f"weight-{factor}")
        if job is not None:
            yield _Trial(fault="", job=job, change=factor, from_length=2)


def _session_trials(
    folder: Path, artifact: Artifact, runtime: Runtime, *, first: bool
) -> Iterator[_Trial]:
    for fault in SESSION_FAULTS.values():
        if (fault.name in _ENDS_THE_PROCESS and not first) or not fault.fits(artifact):
            continue
        yield _Trial(
            fault=fault.name,
            job=_job(folder, folder, artifact, runtime, fault.name),
        )


def _job(place: Path, folder: Path, artifact: Artifact, runtime: Runtime, fault: str | None) -> Job:
    return Job(
        folder=str(place.resolve()),
        artifact=artifact,
        runtime=runtime.name,
        packs=[str((folder / artifact.reference).resolve())],
        threads=max(environment.cores() // children(environment.cores()), 1),
        fault=fault,
        measure_cost=False,
        last_mode_only=True,
    )


def _summed(outcomes: Sequence[tuple[_Trial, RuntimeResult]]) -> SelfTest:
    found = SelfTest(planted=[], false_alarms=[], smallest=[])
    smallest: dict[str, list[tuple[float, bool]]] = {}
    for trial, result in outcomes:
        planted = _judged(trial, result)
        if trial.fault == CONTROL.name:
            if result.exit_code is not ExitCode.PASS:
                codes = ", ".join(planted.codes)
                found.false_alarms.append(f"{planted.artifact} on {planted.runtime}: {codes}")
        elif trial.change is not None:
            entry = (trial.change, planted.rejected)
            smallest.setdefault(planted.artifact, []).append(entry)
        else:
            found.planted.append(planted)
    for artifact, changes in smallest.items():
        seen = [change for change, rejected in changes if rejected]
        found.smallest.append(
            Smallest(artifact=artifact, relative_change=min(seen) if seen else None)
        )
    return found


def _judged(trial: _Trial, result: RuntimeResult) -> Planted:
    """At which lengths the fault had to be seen, and at which it was not."""
    families = trial.families or _PLAIN
    lengths = {
        case.sequence
        for case in result.cases
        if case.family in families
        and case.sequence >= trial.from_length
        and case.sequence != trial.hidden_at
    }
    missed = sorted(lengths - {case.sequence for case in result.cases if _found(case)})
    as_a_whole = {finding.code for finding in result.findings} - {c.code for c in result.cases}
    if any(CODES[code].exit_code is not ExitCode.PASS for code in as_a_whole):
        missed = []
    elif not lengths:
        missed = [0] if trial.fault != CONTROL.name and not result.findings else []
    checks = {f.check for f in result.findings if not fails_nothing(f.code)}
    named = {check.name for check in CHECKS.values() if trial.fault in check.faults}
    # Others may see it too, but this is what they are there for, where the file can be run at all.
    if lengths and named and not named & checks:
        missed = sorted(lengths)
    return Planted(
        fault=trial.fault,
        artifact=trial.job.artifact.id,
        runtime=result.runtime,
        codes=sorted({finding.code for finding in result.findings}),
        checks=[name for name in CHECKS if name in checks],
        lengths=sorted(lengths),
        missed=missed,
    )


def _found(case: CaseResult) -> bool:
    return not fails_nothing(case.code) and case.code is not Code.INCONCLUSIVE
