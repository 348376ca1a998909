"""The child's main loop: requests come in on stdin, answers leave on what was stdout.

File descriptor 1 is given to stderr first, so that nothing that a runtime prints can be taken for
an answer.
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from linattn_runtime_checks.latency.turns import TurnTaker
    from linattn_runtime_checks.processes.requests import Answer, Request

_BEHIND_THE_PARENT = 10
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Serve requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _be_expendable()
    if len(sys.argv) > 1:
        _limit_memory(float(sys.argv[1]))
    serve(sys.stdin, answers)


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer every line of ``requests``."""
    from linattn_runtime_checks.results.environment import calm_threads

    calm_threads()
    from linattn_runtime_checks.latency.turns import TurnTaker
    from linattn_runtime_checks.processes.requests import Answer, Request

    def send(answer: Answer) -> None:
        answers.write(answer.model_dump_json() + "\n")
        answers.flush()

    take = TurnTaker()
    for line in requests:
        request = Request.model_validate_json(line)
        try:
            answer = _answer(request, take, lambda step: send(Answer(step=step)))
        except MemoryError as error:
            answer = Answer(out_of_memory=str(error) or "MemoryError")
        except Exception:
            answer = Answer(broken=traceback.format_exc())
        send(answer)


def _answer(request: "Request", take: "TurnTaker", tell: Callable[[str], None]) -> "Answer":
    from linattn_runtime_checks.judging.artifact import judge
    from linattn_runtime_checks.processes.requests import Answer
    from linattn_runtime_checks.processes.turns import TurnFailed
    from linattn_runtime_checks.runtimes import RUNTIMES

    if request.prepare is not None:
        with contextlib.suppress(AttributeError, OSError):  # not on Windows
            os.nice(_BEHIND_THE_PARENT)  # which writes what is to be judged, and is waited for
        for name in request.prepare:
            RUNTIMES[name].prepare()
        return Answer()
    if request.turn is not None:
        tell(f"latency on {request.turn.case}")
        try:
            return Answer(times=take(request.turn))
        except TurnFailed as error:
            return Answer(turn_failed=(error.code, str(error)))
    assert request.judge is not None
    return Answer(result=judge(request.judge, tell))


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
