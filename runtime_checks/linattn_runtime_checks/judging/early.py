"""Has artifacts judged on every chosen runtime: in children as soon as each is written, or here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.judging.artifact import judge
from linattn_runtime_checks.processes.child import Limits
from linattn_runtime_checks.processes.pool import Pool, children
from linattn_runtime_checks.processes.requests import Job
from linattn_runtime_checks.results import environment
from linattn_runtime_checks.results.report import RuntimeResult
from linattn_runtime_checks.runtimes.base import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToJudge:
    """What holds for every artifact.

    Attributes:
        folder: of the manifest.
        runtimes: each judges the artifacts of its formats.
        limits: of the child processes.
        isolate: judge in child processes; otherwise here, where a debugger can follow.
        more_packs: path of a golden pack, as in the manifest, to further packs for its artifacts.
        repro: folder for a program that shows each failure; None for none.
    """

    folder: Path
    runtimes: Sequence[Runtime]
    limits: Limits = field(default_factory=Limits)
    isolate: bool = True
    more_packs: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    repro: Path | None = None


class Judging:
    """Judges artifacts from the moment that they are added; leaving the ``with`` block ends it."""

    def __init__(self, how: HowToJudge, artifacts: int, soon: Sequence[str] = ()) -> None:
        """Start with nothing to judge.

        Args:
            how: see there.
            artifacts: how many will be added, about; the number of children depends on it.
            soon: formats of artifacts that will be added later, so that children import what they
                need for those meanwhile.
        """
        prepare = [runtime.name for runtime in how.runtimes if set(runtime.formats) & set(soon)]
        self._how = how
        workers = children(artifacts)
        self._threads = max(environment.cores() // (workers if how.isolate else 1), 1)
        self._pool = Pool(how.limits, workers, prepare) if how.isolate else None
        self._jobs: list[Job] = []

    def __enter__(self) -> "Judging":
        if self._pool is not None:
            self._pool.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, error, trace)

    def add(self, artifact: Artifact) -> None:
        """Judge ``artifact``, whose file and golden pack are in the folder by now."""
        for runtime in self._how.runtimes:
            if artifact.format in runtime.formats:
                self._jobs.append(self._job(artifact, runtime))
                if self._pool is not None:
                    self._pool.submit(self._jobs[-1])

    def __len__(self) -> int:
        return len(self._jobs)

    def results(self, done: Callable[[Job], None]) -> Iterable[tuple[Job, RuntimeResult]]:
        """Wait for all; in the order in which they were added.

        Args:
            done: told of every job that has ended.
        """
        if self._pool is not None:
            return zip(self._jobs, self._pool.results(done), strict=True)
        return [(job, self._judged_here(job, done)) for job in self._jobs]

    def _judged_here(self, job: Job, done: Callable[[Job], None]) -> RuntimeResult:
        result = judge(job, lambda step: None)
        done(job)
        return result

    def _job(self, artifact: Artifact, runtime: Runtime) -> Job:
        how = self._how
        packs = [how.folder / artifact.reference, *how.more_packs.get(artifact.reference, ())]
        return Job(
            folder=str(how.folder.resolve()),
            artifact=artifact,
            runtime=runtime.name,
            packs=[str(pack.resolve()) for pack in packs],
            repro=None if how.repro is None else str(how.repro.resolve()),
            threads=self._threads,
        )
