"""The parent's side: a few children that take jobs in turn."""

import queue
import threading
from collections.abc import Callable, Sequence

from linattn_runtime_checks import environment
from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.isolation.job import Job, Request
from linattn_runtime_checks.isolation.process import Child, ChildFailed, Limits
from linattn_runtime_checks.report.model import Finding, RuntimeResult

_MOST_CHILDREN = 4
_JOBS_FOR_ONE = 16


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
    workers = [Child(limits) for _ in range(children(len(jobs)))]

    def work(child: Child) -> None:
        try:
            while not faults:
                try:
                    index = waiting.get_nowait()
                except queue.Empty:
                    break
                result = judged_in(child, jobs[index])
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
    return RuntimeResult(runtime=job.runtime, findings=[Finding.of(code, text)])
