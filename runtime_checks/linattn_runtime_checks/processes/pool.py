"""The parent's side: a few children that take jobs in turn."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.processes.child import Child, ChildFailed, Limits
from linattn_runtime_checks.processes.requests import Job, Request
from linattn_runtime_checks.results import environment
from linattn_runtime_checks.results.report import Finding, RuntimeResult

_MOST_CHILDREN = 4
_JOBS_FOR_ONE = 4


def children(jobs: int) -> int:
    """How many children work at once; each gets an equal share of the cores.

    One for a few jobs: another would spend longer on its imports than it saves.
    """
    return max(1, min(environment.cores(), -(-jobs // _JOBS_FOR_ONE), _MOST_CHILDREN))


class Pool:
    """Children that start on a job as soon as it is submitted.

    A child that dies, hangs or runs out of memory gives its job a result with that finding; the
    others go on in a new one. Leaving the ``with`` block ends all of them, whatever they do.
    """

    def __init__(self, limits: Limits, workers: int, prepare: Sequence[str] = ()) -> None:
        """``prepare``: runtimes that the children import before there is a job."""
        self._prepare = list(prepare)
        self._waiting: queue.SimpleQueue[tuple[int, Job] | None] = queue.SimpleQueue()
        self._jobs: list[Job] = []
        self._results: dict[int, RuntimeResult] = {}  # in the order in which they came
        self._faults: list[BaseException] = []
        self._closed = False
        self._changed = threading.Condition()
        self._children = [Child(limits) for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._work, args=(child,), daemon=True)
            for child in self._children
        ]

    def __enter__(self) -> "Pool":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._closed = True
        for child in self._children:
            child.kill()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def submit(self, job: Job) -> None:
        """Have ``job`` judged when a child is free."""
        self._waiting.put((len(self._jobs), job))
        self._jobs.append(job)

    def results(self, done: Callable[[Job], None] = lambda job: None) -> list[RuntimeResult]:
        """Wait for all that was submitted, and end the children; results are in that order.

        Args:
            done: told of every job that has ended, those before this call first.

        Raises:
            InternalFault: a child met a fault of ours.
        """
        told = 0
        while told < len(self._jobs):
            with self._changed:
                while not self._faults and len(self._results) == told:
                    self._changed.wait()
                if self._faults:
                    raise self._faults[0]
                ended = list(self._results)[told:]
            for index in ended:
                done(self._jobs[index])
            told += len(ended)
        self._close()
        return [self._results[index] for index in range(len(self._jobs))]

    def _work(self, child: Child) -> None:
        try:
            if self._prepare:
                with contextlib.suppress(ChildFailed):  # a job will meet the same, and say so
                    child.ask(Request(prepare=self._prepare))
            while (item := self._waiting.get()) is not None and not self._closed:
                index, job = item
                result = judged_in(child, job)
                with self._changed:
                    self._results[index] = result
                    self._changed.notify_all()
        except BaseException as error:  # raised again in the caller's thread
            with self._changed:
                self._faults.append(error)
                self._changed.notify_all()


def run_jobs(
    jobs: Sequence[Job], limits: Limits, done: Callable[[Job], None] = lambda job: None
) -> list[RuntimeResult]:
    """The results of ``jobs``, run in children; see :meth:`Pool.results`."""
    with Pool(limits, children(len(jobs))) as pool:
        for job in jobs:
            pool.submit(job)
        return pool.results(done)


def judged_in(child: Child, job: Job) -> RuntimeResult:
    """The result of ``job``, or what became of the process."""
    try:
        answer = child.ask(Request(judge=job))
    except ChildFailed as error:
        return _failed(job, error.code, str(error))
    assert answer.result is not None
    return answer.result


def _failed(job: Job, code: Code, message: str) -> RuntimeResult:
    text = f"{job.artifact.id} on {job.runtime}: {message}"
    return RuntimeResult(runtime=job.runtime, findings=[Finding.of(code, text, check="process")])
