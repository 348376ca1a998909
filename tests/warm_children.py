"""Children that outlive the build that started them: the next one finds them with imports done.

A build of a test takes two seconds, and half of that would be its child importing a runtime. What
a child is asked, and what becomes of it, is the product's own; only its start and its end are
other. Tests about just these take the fixture ``cold_children``.
"""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from linattn_runtime_checks.processes.child import Child, Limits
from linattn_runtime_checks.processes.requests import Answer, Request

Started = tuple["subprocess.Popen[str]", IO[Any] | None]
_parked: dict[object, list[Started]] = {}
_lock = threading.Lock()
# A child ends with the thread that started it, and the threads of a build end with the build.
_starter = ThreadPoolExecutor(1)


class WarmChild(Child):
    """A child that is parked, not ended, when it was told to end while it had nothing to do."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._asked = False

    def ask(self, request: Request) -> Answer:
        """As a child does, and remembers that it is not idle until there is an answer."""
        with _lock:
            self._asked = True
        answer = super().ask(request)
        with _lock:
            self._asked = False
        return answer

    def kill(self) -> None:
        """Park it if it is idle; the next child that starts alike goes on with it."""
        with _lock:
            process, log = self._process, self._log
            if process is not None and not self._asked and process.poll() is None:
                self._process = self._log = None
                _parked.setdefault(_conditions(self._limits), []).append((process, log))
        super().kill()

    def _started(self) -> "subprocess.Popen[str]":
        with _lock:
            if self._process is None and not self._gone:
                waiting = _parked.get(_conditions(self._limits), [])
                while waiting and self._process is None:
                    process, log = waiting.pop()
                    if process.poll() is None:
                        self._process, self._log = process, log
        return _starter.submit(super()._started).result()


def end_all() -> None:
    """End every child that is parked."""
    for waiting in _parked.values():
        for process, log in waiting:
            child = Child(Limits())
            child._process, child._log = process, log
            child.kill()
    _parked.clear()


def _conditions(limits: Limits) -> object:
    """What a child has from the moment that it starts."""
    told = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return limits.gibibytes, tuple(sorted(told.items())), tuple(sys.path), os.getcwd()
