"""One turn of one artifact: a few runs, timed where the artifact runs, in a child process.

The parent decides whose turn it is; only the clock readings travel. So what a runtime does to its
process while it is timed is a verdict about that artifact, and no message is part of a latency.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import EnvironmentProblem, ExportError
from linattn_runtime_checks.contract.golden_pack import Reference, open_reference
from linattn_runtime_checks.processes.turns import Times, Turn, TurnFailed
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import RunFailed, Session, SessionOptions, Tensors


class TurnTaker:
    """Takes turns in this process, keeping sessions and inputs from one to the next.

    A session holds on to the memory of its longest run. Where that is much, a turn says that
    nothing is to be kept.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._packs: dict[str, Reference] = {}
        self._sessions: dict[tuple[str, str], Session] = {}
        self._inputs: dict[tuple[str, str], Tensors] = {}

    def __call__(self, turn: Turn) -> Times:
        """Run as ``turn`` says, in the mode that users run.

        Raises:
            TurnFailed: it does not open or run.
        """
        try:
            session, session_s = self._session(turn)
            inputs = self._input(turn)
            return Times(
                seconds=time_runs(lambda: session.run(inputs), turn.uncounted, turn.counted),
                session_s=session_s,
            )
        except RunFailed as error:
            raise TurnFailed(Code.RUN_FAILED, f"{turn.case}: {error}") from error
        except ExportError as error:
            raise TurnFailed(Code.LOAD_FAILED, str(error)) from error
        except EnvironmentProblem as error:
            raise TurnFailed(Code.PROVIDER_FALLBACK, str(error)) from error
        finally:
            if turn.forget:
                self.close()

    def close(self) -> None:
        """Forget everything."""
        self._sessions.clear()
        self._inputs.clear()
        self._packs.clear()
        self._stack.close()

    def _session(self, turn: Turn) -> tuple[Session, float | None]:
        key = (turn.artifact.id, turn.runtime)
        if key in self._sessions:
            return self._sessions[key], None
        runtime = RUNTIMES[turn.runtime]
        options = SessionOptions(mode=runtime.modes[-1], threads=turn.threads)
        start = time.perf_counter_ns()
        path = Path(turn.folder) / turn.artifact.path
        self._sessions[key] = runtime.open(path, turn.artifact, options)
        return self._sessions[key], (time.perf_counter_ns() - start) * 1e-9

    def _input(self, turn: Turn) -> Tensors:
        """Artifacts of one pack share the copies: several may be timed on one case."""
        path = turn.artifact.reference
        key = (path, turn.case)
        if key not in self._inputs:
            if path not in self._packs:
                opened = open_reference(Path(turn.folder) / path)
                self._packs[path] = self._stack.enter_context(opened)
            pack = self._packs[path]
            self._inputs[key] = pack.inputs(pack.case(turn.case))
        return self._inputs[key]


def time_runs(call: Callable[[], object], uncounted: int, counted: int) -> list[float]:
    """Seconds of each of ``counted`` calls, after ``uncounted`` others."""
    for _ in range(uncounted):
        call()
    found = []
    for _ in range(counted):
        start = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - start) * 1e-9)
    return found
