"""What the parent asks of a child that times an artifact, and what it answers."""

from pydantic import BaseModel

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.manifest import Artifact


class Turn(BaseModel):
    """Run one artifact on one stored input.

    Attributes:
        folder: of the manifest, absolute.
        artifact: its entry.
        runtime: name in RUNTIMES.
        case: name of a case of the artifact's golden pack.
        threads: within one operator.
        uncounted: runs that are not timed, first.
        counted: runs that are.
        forget: keep nothing for the next turn: neither the session nor the inputs.
    """

    folder: str
    artifact: Artifact
    runtime: str
    case: str
    threads: int
    uncounted: int
    counted: int
    forget: bool = False


class Times(BaseModel):
    """What a turn took: seconds of each counted run, and of opening, where it opened."""

    seconds: list[float]
    session_s: float | None = None


class TurnFailed(Exception):
    """An artifact that passed cannot be timed; ``code`` says in which way."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
