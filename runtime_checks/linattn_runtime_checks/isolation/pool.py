"""The parent's side: a few children that take jobs in turn, each replaced when it dies."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from linattn_runtime_checks import environment
from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.isolation.job import Answer, Job
from linattn_runtime_checks.report.model import Finding, RuntimeResult

_MOST_CHILDREN = 4
_JOBS_FOR_ONE = 16
_TAIL = 400
DEFAULT_TIME_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a child: seconds without an answer, and GiB of memory (None: the machine's)."""

    seconds: float = DEFAULT_TIME_LIMIT_S
    gibibytes: float | None = None


class InternalFault(RuntimeError):
    """A fault of ours in a child; the text is its traceback."""


def children(jobs: int) -> int:
    """How many children work at once; each gets an equal share of the cores.

    One for a few jobs: another would spend longer on its imports than it saves.
    """
    return max(1, min(environment.cores(), -(-jobs // _JOBS_FOR_ONE), _MOST_CHILDREN))


def run_jobs(
    jobs: Sequence[Job], limits: Limits, done: Callable[[Job], None]
) -> list[RuntimeResult]:
    """Run ``jobs`` in children; results are in the order of the jobs.

    A child that dies, hangs or runs out of memory gives its job a result with that finding; the
    others go on in a new one.

    Args:
        jobs: all of them.
        limits: of each child.
        done: told of every job that ended, from the threads of the pool, one at a time.

    Raises:
        InternalFault: a child met a fault of ours.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(jobs)):
        waiting.put(index)
    results: dict[int, RuntimeResult] = {}
    faults: list[BaseException] = []
    lock = threading.Lock()
    workers = [_Child(limits) for _ in range(children(len(jobs)))]

    def work(child: _Child) -> None:
        try:
            while not faults:
                try:
                    index = waiting.get_nowait()
                except queue.Empty:
                    break
                result = child.judge(jobs[index])
                with lock:
                    results[index] = result
                    done(jobs[index])
        except BaseException as error:  # raised again in the caller's thread
            faults.append(error)

    threads = [threading.Thread(target=work, args=(child,), daemon=True) for child in workers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for child in workers:
            child.kill()
    if faults:
        raise faults[0]
    return [results[index] for index in range(len(jobs))]


class _Child:
    """One process, started when first needed."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[Any] | None = None
        self._killed_for: str | None = None
        self._gone = False

    def judge(self, job: Job) -> RuntimeResult:
        """The result of ``job``, or what became of the process."""
        process = self._started()
        assert process.stdin is not None
        step = "starting"
        self._killed_for = None
        with contextlib.suppress(BrokenPipeError):  # then reading says what happened
            process.stdin.write(job.model_dump_json() + "\n")
            process.stdin.flush()
        while True:
            answer = self._read(process)
            if answer is None:
                return self._died(job, step, process)
            if answer.step is not None:
                step = answer.step
            if answer.broken is not None:
                raise InternalFault(answer.broken)
            if answer.out_of_memory is not None:
                self._end()
                message = f"out of memory at {step}: {answer.out_of_memory}"
                return _failed(job, Code.OUT_OF_MEMORY, message)
            if answer.result is not None:
                return answer.result

    def _read(self, process: "subprocess.Popen[str]") -> Answer | None:
        """The next answer; None if the process ended or was silent for too long."""
        assert process.stdout is not None
        timer = threading.Timer(self._limits.seconds, self._hung, args=(process,))
        timer.daemon = True
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        return Answer.model_validate_json(line) if line.endswith("\n") else None

    def _hung(self, process: "subprocess.Popen[str]") -> None:
        self._killed_for = "time"
        process.kill()

    def _died(self, job: Job, step: str, process: "subprocess.Popen[str]") -> RuntimeResult:
        status = process.wait()
        tail = self._tail()
        self._end()
        if self._killed_for == "time":
            message = f"no answer for {self._limits.seconds:g} s at {step}; it was stopped"
            return _failed(job, Code.RUNTIME_HUNG, message)
        how = f"exit status {status}" if status >= 0 else _signal_name(-status)
        if status == -signal.SIGKILL:
            message = f"the process was killed ({how}) at {step}, most likely for its memory{tail}"
            return _failed(job, Code.OUT_OF_MEMORY, message)
        return _failed(job, Code.RUNTIME_CRASHED, f"the process died of {how} at {step}{tail}")

    def _tail(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        words = " ".join(text.split())
        return f"; its last words: {words[-_TAIL:]}" if words else ""

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None:
            command = [sys.executable, "-P", "-m", "linattn_runtime_checks.isolation.child"]
            if self._limits.gibibytes is not None:
                command.append(str(self._limits.gibibytes))
            paths = os.pathsep.join(path for path in sys.path if path)
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _end
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                encoding="utf-8",
                env=os.environ | {"PYTHONPATH": paths},
            )
            if self._gone:
                self._process.kill()
        return self._process

    def kill(self) -> None:
        """End it now; also one that is about to start."""
        self._gone = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if self._log is not None:
            self._log.close()
            self._log = None


def _failed(job: Job, code: Code, message: str) -> RuntimeResult:
    text = f"{job.artifact.id} on {job.runtime}: {message}"
    return RuntimeResult(runtime=job.runtime, findings=[Finding.of(code, text)])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
