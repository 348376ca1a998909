"""What the parent asks of a child, and what it answers; one JSON document a line."""

from pydantic import BaseModel

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.processes.turns import Times, Turn
from linattn_runtime_checks.results.report import RuntimeResult


class Job(BaseModel):
    """Judge one artifact on one runtime.

    Attributes:
        folder: of the manifest, absolute.
        artifact: its entry.
        runtime: name in RUNTIMES.
        packs: golden packs, absolute paths; the artifact's own one first.
        threads: within one operator.
        fault: name in SESSION_FAULTS, for the self-test; None for none.
        measure_cost: certify the graph's cost and measure peak memory too.
        last_mode_only: only the mode that users run.
        repro: folder for a program that shows a failure, absolute; None for none.
    """

    folder: str
    artifact: Artifact
    runtime: str
    packs: list[str]
    threads: int
    fault: str | None = None
    measure_cost: bool = True
    last_mode_only: bool = False
    repro: str | None = None


class Request(BaseModel):
    """A line to the child: one of these."""

    prepare: list[str] | None = None
    """Names of runtimes that it will need soon."""
    judge: Job | None = None
    turn: Turn | None = None


class Answer(BaseModel):
    """A line from the child: the step it is at or, last, what was asked for or why not.

    All fields are empty once it has prepared.
    """

    step: str | None = None
    result: RuntimeResult | None = None
    times: Times | None = None
    turn_failed: tuple[Code, str] | None = None
    broken: str | None = None
    """Traceback of a fault of ours in the child."""
    out_of_memory: str | None = None
