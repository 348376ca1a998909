"""The tests of ``pytest --linattn DIR``: a tree of folder, artifact, runtime and check.

Collection reads the manifest and the indexes of the golden packs. The first test of an artifact on
a runtime judges it, in a child process, for all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.checks.base import When
from linattn_runtime_checks.checks.files import FILES
from linattn_runtime_checks.checks.judged import JUDGED
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode, ExportError, LinattnError
from linattn_runtime_checks.contract.golden_pack import ReferenceIndex, open_reference
from linattn_runtime_checks.contract.integrity import damage
from linattn_runtime_checks.contract.manifest import Artifact, Manifest, StoredFile, read
from linattn_runtime_checks.judging.folder import CheckRequest, check_folder
from linattn_runtime_checks.report import junit
from linattn_runtime_checks.report.junit import Outcome
from linattn_runtime_checks.runtimes import RUNTIMES, choose
from linattn_runtime_checks.runtimes.base import Runtime


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is asked of one folder.

    Attributes:
        manifest: its own.
        runtimes: those to judge on.
        left_out: the others, with the reason.
        selections: parts of node ids, such as ``layer/elu/onnx/dynamic::ort-cpu``; all if empty.
    """

    manifest: Manifest
    runtimes: list[Runtime]
    left_out: dict[str, str]
    selections: list[str] = field(default_factory=list)


def plan(folder: Path, runtimes: tuple[str, ...]) -> Plan:
    """Read ``folder`` and choose the runtimes.

    Raises:
        pytest.UsageError: one of them cannot be used.
    """
    try:
        chosen, left_out = choose(runtimes)
        return Plan(manifest=read(folder), runtimes=chosen, left_out=left_out)
    except LinattnError as error:
        raise pytest.UsageError(str(error)) from error


def tests(session: pytest.Session, path: Path, asked: Plan) -> list[pytest.Item]:
    """The tests of one folder.

    Raises:
        pytest.UsageError: a selection names no test.
    """
    root = session.config.rootpath
    nodeid = (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()
    folder = Folder.from_parent(session, name=path.name, nodeid=nodeid, path=path, plan=asked)
    found = list(session.genitems(folder))
    chosen: dict[pytest.Item, None] = {} if asked.selections else dict.fromkeys(found)
    for selection in asked.selections:
        name = f"{nodeid}::{selection}"
        named = [
            i for i in found if i.nodeid == name or i.nodeid.startswith((f"{name}::", f"{name}["))
        ]
        if not named:
            raise pytest.UsageError(
                f"{path} has no test {selection!r}; --collect-only lists those that there are"
            )
        chosen |= dict.fromkeys(named)
    return list(chosen)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was found, by the name of the check; ``otherwise`` is said of those without any."""

    outcomes: Mapping[str, Sequence[Outcome]]
    otherwise: str


class CheckFailed(Exception):
    """A check that did not pass."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        super().__init__(", ".join(outcome.code for outcome in outcomes))
        self.outcomes = outcomes


class _Item(pytest.Item):
    """A test whose failure is told by code, message and fix, without a traceback."""

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any
    ) -> Any:
        """A fault of ours keeps its traceback."""
        if isinstance(excinfo.value, LinattnError):
            return str(excinfo.value)
        if not isinstance(excinfo.value, CheckFailed):
            return super().repr_failure(excinfo, *args, **kwargs)
        found = excinfo.value.outcomes
        return "\n".join(f"{o.code}: {o.message}\n  fix: {CODES[o.code].fix}" for o in found)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The heading of a failure."""
        return self.path, None, ": ".join(node.name for node in self.listchain()[1:])

    def skip(self, reason: str) -> NoReturn:
        """Skip; the summary of pytest shows the reason without the node id."""
        pytest.skip(f"{reason} ({self.nodeid})")


class Folder(pytest.Collector):
    """A folder that a build wrote."""

    def __init__(self, *, plan: Plan, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self._indexes: dict[str, ReferenceIndex | None] = {}

    def collect(self) -> Iterator[pytest.Collector]:
        """Its files, then its artifacts."""
        yield Files.from_parent(self, name="files")
        for artifact in self.plan.manifest.artifacts:
            yield ArtifactChecks.from_parent(self, name=artifact.id, artifact=artifact)

    def index(self, pack: str) -> ReferenceIndex | None:
        """What a golden pack holds; None if it cannot be read, which the test of its file says."""
        if pack not in self._indexes:
            try:
                with open_reference(self.path / pack) as reference:
                    self._indexes[pack] = reference.index
            except (ExportError, OSError, ValueError):
                self._indexes[pack] = None
        return self._indexes[pack]


class Files(pytest.Collector):
    """The files that the manifest vouches for."""

    parent: Folder

    def collect(self) -> Iterator[pytest.Item]:
        """One test for each."""
        for file in self.parent.plan.manifest.files():
            yield FileCheck.from_parent(self, name=file.path, file=file)


class FileCheck(_Item):
    """Whether one file is as it was written."""

    def __init__(self, *, file: StoredFile, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._file = file

    def runtest(self) -> None:
        """Compare size and hash."""
        what = damage(self.path, self._file)
        if what is not None:
            message = f"{self._file.path} {what}"
            raise CheckFailed([Outcome(name=FILES.name, code=Code.FILE_DAMAGED, message=message)])


class ArtifactChecks(pytest.Collector):
    """One artifact."""

    parent: Folder

    def __init__(self, *, artifact: Artifact, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.artifact = artifact

    def collect(self) -> Iterator[pytest.Collector | pytest.Item]:
        """One collector for each runtime that can judge it; without any, one skipped test."""
        plan, form = self.parent.plan, self.artifact.format
        takers = [runtime for runtime in plan.runtimes if form in runtime.formats]
        for runtime in takers:
            yield RuntimeChecks.from_parent(self, name=runtime.name, runtime=runtime)
        if not takers:
            known = [name for name, runtime in RUNTIMES.items() if form in runtime.formats]
            reason = "; ".join(f"{name}: {plan.left_out[name]}" for name in known)
            yield NotJudged.from_parent(
                self, name=JUDGED.name, reason=reason or f"no runtime runs {form}"
            )


class NotJudged(_Item):
    """An artifact that no runtime here can judge."""

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._reason = reason

    def runtest(self) -> None:
        """Say why."""
        self.skip(f"{Code.NOT_JUDGED}: {self._reason}")


class RuntimeChecks(pytest.Collector):
    """One artifact on one runtime, judged when its first test asks."""

    parent: ArtifactChecks

    def __init__(self, *, runtime: Runtime, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        artifact = self.parent.artifact
        self._runtime = runtime
        self._judged: Judged | Exception | None = None
        self._planned = planned(artifact, runtime, self.parent.parent.index(artifact.reference))

    def collect(self) -> Iterator[pytest.Item]:
        """Every check that may apply."""
        for name in self._planned:
            # Given as text: only then does pytest 9 see the mode as a parameter, as --lf needs.
            yield Check.from_parent(self, name=name, nodeid=f"{self.nodeid}::{name}")

    def judged(self) -> Judged:
        """What was found; a fault of ours is raised to every test."""
        if self._judged is None:
            try:
                self._judged = self._judge()
            except Exception as error:
                self._judged = error
        if isinstance(self._judged, Exception):
            raise self._judged
        return self._judged

    def _judge(self) -> Judged:
        artifact, manifest = self.parent.artifact, self.parent.parent.plan.manifest
        references = [r for r in manifest.references if r.path == artifact.reference]
        part = {"artifacts": [artifact], "references": references, "test_data": []}
        request = CheckRequest(runtimes=(self._runtime.name,), latency=False, quiet=True)
        report = check_folder(self.path, manifest.model_copy(update=part), request)
        if report.findings:
            return Judged(outcomes={}, otherwise=f"not loaded: {report.findings[0].message}")
        (result,) = report.artifacts
        found = [outcome for runtime in result.runtimes for outcome in junit.outcomes(runtime)]
        found += [junit.placed(finding) for finding in result.findings]
        if result.exit_code is ExitCode.PASS:
            known = {outcome.name for outcome in found}
            found += [
                Outcome(name=check.name, code=Code.PASS)
                for check in CHECKS.values()
                if check.when is When.ARTIFACT and check.name not in known
            ]
        by_name: dict[str, list[Outcome]] = {}
        for outcome in found:
            name = outcome.name if outcome.name in self._planned else junit.OTHER
            by_name.setdefault(name, []).append(outcome)
        by_name.setdefault(junit.OTHER, [Outcome(name=junit.OTHER, code=Code.PASS)])
        red = ", ".join(dict.fromkeys(outcome.name for outcome in found if outcome.red))
        otherwise = f"not reached; see {red}" if red else "does not apply to this artifact"
        return Judged(outcomes=by_name, otherwise=otherwise)


class Check(_Item):
    """One check of one artifact on one runtime."""

    parent: RuntimeChecks

    def runtest(self) -> None:
        """Fail or skip as the judgement says."""
        judged = self.parent.judged()
        found = judged.outcomes.get(self.name, ())
        if red := [outcome for outcome in found if outcome.red]:
            raise CheckFailed(red)
        if not found:
            self.skip(judged.otherwise)
        for outcome in found:
            if outcome.kind == "skipped":
                self.skip(f"{outcome.code}: {outcome.message}")


def planned(artifact: Artifact, runtime: Runtime, index: ReferenceIndex | None) -> list[str]:
    """The names of all checks that may apply, in order, without opening the artifact."""
    accepted = [c for c in index.cases if artifact.accepts(c.batch, c.sequence)] if index else []
    cases = [junit.case_name(case.name, mode) for mode in runtime.modes for case in accepted]
    found: list[str] = []
    for check in CHECKS.values():
        if check.when is not When.FOLDER and check.applies(artifact, runtime, index):
            found += cases if check.by_case else [check.name]
    return [*found, junit.OTHER]
