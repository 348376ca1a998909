"""What a check is: one thing that must hold of an artifact, and how it is found out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import Reference, ReferenceIndex
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.results.report import CaseResult, Finding, RuntimeResult
from linattn_runtime_checks.runtimes.base import Runtime, Session, Signature

Tell = Callable[[str], None]


class When(Enum):
    """Where in the judging of an artifact a check has its turn."""

    FOLDER = auto()
    """Of the folder as a whole, before and after its artifacts are judged."""
    CARRIED = auto()
    """Found by what carries the judging: it starts the process and opens the file."""
    FIRST_MODE = auto()
    """Once, on the session of the runtime's first mode."""
    EVERY_MODE = auto()
    """On the session of each mode."""
    LAST_MODE = auto()
    """Once, on the session of the mode that users run, after all cases have been compared."""
    ARTIFACT = auto()
    """Known of an artifact when every runtime has had its turn."""


@dataclass(kw_only=True)
class Context:
    """What a check may look at: one artifact, opened on one runtime.

    Attributes:
        artifact: its manifest entry.
        runtime: what runs it.
        path: of the artifact's file.
        packs: golden packs; the artifact's own one first.
        session: opened in ``mode``.
        mode: one of the runtime's modes.
        result: what was found so far; a check that measures adds its measurement.
        cases: what parity found in this mode.
        tell: told of every step before it is taken.
        planted: a fault was planted in the session, which excuses nothing.
        measure_cost: the cost is asked for.
    """

    artifact: Artifact
    runtime: Runtime
    path: Path
    packs: Sequence[Reference]
    session: Session
    mode: str
    result: RuntimeResult
    cases: list[CaseResult] = field(default_factory=list)
    tell: Tell = lambda step: None
    planted: bool = False
    measure_cost: bool = False

    @property
    def reference(self) -> Reference:
        """The artifact's own golden pack."""
        return self.packs[0]

    @property
    def where(self) -> str:
        """Artifact and runtime, for messages."""
        return f"{self.artifact.id} on {self.runtime.name}"

    @property
    def signature(self) -> Signature | None:
        """Inputs and outputs as the file declares them; None where its format does not say."""
        return self.session.signature()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a check found: a stable code, and value, expectation and fix in words.

    ``place`` is what the words are about; None means the artifact on the runtime.
    """

    code: Code
    message: str
    place: str | None = None


Applies = Callable[[Artifact, Runtime, ReferenceIndex | None], bool]


def always(artifact: Artifact, runtime: Runtime, index: ReferenceIndex | None) -> bool:
    """For checks of every artifact."""
    return True


def of_dynamic_axes(artifact: Artifact, runtime: Runtime, index: ReferenceIndex | None) -> bool:
    """For checks of artifacts in which at least one size varies."""
    return any(low != high for low, high in (axis.declared for axis in artifact.axes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: each file of this folder ends with one, and the table holds it in a line.

    Attributes:
        name: in reports, JUnit files and node ids of pytest.
        title: what holds where it passes.
        codes: those that are its own; every code belongs to one check.
        shares: codes of other checks under which it reports too; ``run_failed`` is always one.
        when: where it has its turn.
        applies: whether it may say something of an artifact on a runtime, told from the manifest
            and the index of the golden pack (None where the pack cannot be read).
        run: the problems, none where it passes; None where it turns out that it does not apply.
            A check without it is found by something else, which its file names.
        faults: planted faults that it must reject, by their names in the self-test.
        by_case: it compares case by case, and each case is a test of its own in reports.
    """

    name: str
    title: str
    codes: tuple[Code, ...]
    shares: tuple[Code, ...] = ()
    when: When = When.LAST_MODE
    applies: Applies = always
    run: Callable[[Context], Sequence[Problem] | None] | None = None
    faults: tuple[str, ...] = ()
    by_case: bool = False

    def finding(self, code: Code, message: str) -> Finding:
        """A finding of this check.

        Raises:
            AssertionError: the code is none of this check's.
        """
        known = (*self.codes, *self.shares, Code.RUN_FAILED)
        assert code in known, f"{code} is no code of the check {self.name}"
        return Finding.of(code, message, check=self.name)
