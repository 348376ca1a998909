"""Calls under a mode that sees every operator, of modules that may hold torch.cond and the like.

Such an operator is compiled where it is called, which is not possible under a mode, and the attempt
leaves the compiler in a state in which the next call without a mode fails too.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from linattn.torch_internals import HIGHER_ORDER_FILES, forget_compiled


def under(mode: AbstractContextManager[Any], call: Callable[[], Any]) -> Any | None:
    """What ``call`` returns under ``mode``; None where it holds an operator of that kind."""
    try:
        with mode:
            return call()
    except Exception as error:
        if not _of_an_operator_with_functions(error):
            raise
        forget_compiled()
        return None


def _of_an_operator_with_functions(error: BaseException | None) -> bool:
    while error is not None:
        frames, trace = [], error.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame.f_code.co_filename.replace("\\", "/"))
            trace = trace.tb_next
        if any(part in file for file in frames for part in HIGHER_ORDER_FILES):
            return True
        error = error.__cause__
    return False
