"""One child process: started when first asked, replaced when it died."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from typing import IO, Any

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.processes.requests import Answer, Request

_TAIL = 400
DEFAULT_TIME_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a child: seconds without an answer, and GiB of memory (None: the machine's)."""

    seconds: float = DEFAULT_TIME_LIMIT_S
    gibibytes: float | None = None


class InternalFault(RuntimeError):
    """A fault of ours in a child; the text is its traceback."""


class ChildFailed(Exception):
    """What became of the process that was asked; ``code`` says in which way."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Child:
    """One process that answers requests in turn."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[Any] | None = None
        self._killed_for: str | None = None
        self._gone = False

    def ask(self, request: Request) -> Answer:
        """The answer to ``request``.

        Raises:
            ChildFailed: the process died, hung or ran out of memory.
            InternalFault: it met a fault of ours.
        """
        process = self._started()
        assert process.stdin is not None
        step = "starting"
        self._killed_for = None
        with contextlib.suppress(BrokenPipeError):  # then reading says what happened
            process.stdin.write(request.model_dump_json() + "\n")
            process.stdin.flush()
        while True:
            answer = self._read(process)
            if answer is None:
                raise self._died(step, process)
            if answer.broken is not None:
                raise InternalFault(answer.broken)
            if answer.out_of_memory is not None:
                self._end()
                message = f"out of memory at {step}: {answer.out_of_memory}"
                raise ChildFailed(Code.OUT_OF_MEMORY, message)
            if answer.step is None:
                return answer
            step = answer.step

    def _read(self, process: "subprocess.Popen[str]") -> Answer | None:
        """The next line; None if the process ended or was silent for too long."""
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

    def _died(self, step: str, process: "subprocess.Popen[str]") -> ChildFailed:
        status = process.wait()
        tail = self._tail()
        self._end()
        if self._killed_for == "time":
            message = f"no answer for {self._limits.seconds:g} s at {step}; it was stopped"
            return ChildFailed(Code.RUNTIME_HUNG, message)
        how = f"exit status {status}" if status >= 0 else _signal_name(-status)
        if status == -signal.SIGKILL:
            message = f"the process was killed ({how}) at {step}, most likely for its memory{tail}"
            return ChildFailed(Code.OUT_OF_MEMORY, message)
        return ChildFailed(Code.RUNTIME_CRASHED, f"the process died of {how} at {step}{tail}")

    def _tail(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        words = " ".join(text.split())
        return f"; its last words: {words[-_TAIL:]}" if words else ""

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None:
            command = [sys.executable, "-P", "-m", "linattn_runtime_checks.judging.child_main"]
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
