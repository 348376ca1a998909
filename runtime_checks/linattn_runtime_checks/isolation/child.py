"""The child's main loop: jobs come in on stdin, answers leave on what was stdout.

File descriptor 1 is given to stderr first, so that nothing that a runtime prints can be taken for
an answer.
"""

import contextlib
import os
import signal
import sys
import traceback
from typing import TextIO

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Serve jobs until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _be_expendable()
    if len(sys.argv) > 1:
        _limit_memory(float(sys.argv[1]))
    serve(sys.stdin, answers)


def serve(jobs: TextIO, answers: TextIO) -> None:
    """Answer every line of ``jobs``."""
    from linattn_runtime_checks.environment import calm_threads
    from linattn_runtime_checks.isolation.job import Answer, Job

    calm_threads()

    def send(answer: Answer) -> None:
        answers.write(answer.model_dump_json() + "\n")
        answers.flush()

    for line in jobs:
        from linattn_runtime_checks.judge import judge

        job = Job.model_validate_json(line)
        try:
            answer = Answer(result=judge(job, lambda step: send(Answer(step=step))))
        except MemoryError as error:
            answer = Answer(out_of_memory=str(error) or "MemoryError")
        except Exception:
            answer = Answer(broken=traceback.format_exc())
        send(answer)


def _be_expendable() -> None:
    """Linux: end with the parent, and be the first that the kernel kills when memory runs out."""
    with contextlib.suppress(OSError):
        import ctypes

        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:
        stream.write("1000")


def _limit_memory(gibibytes: float) -> None:
    """Allocations beyond the limit fail; address space that is only reserved does not count."""
    import resource

    size = int(gibibytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


if __name__ == "__main__":
    main()
