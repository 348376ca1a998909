"""The process of the runtime lives, answers in time and stays within its memory.

The parent of the process sees it; see ``processes``.
"""

from linattn_runtime_checks.checks.base import Check, When
from linattn_runtime_checks.contract.codes import Code

PROCESS = Check(
    name="process",
    title="the process of the runtime lives, answers in time and stays within its memory",
    codes=(Code.RUNTIME_CRASHED, Code.RUNTIME_HUNG, Code.OUT_OF_MEMORY),
    when=When.CARRIED,
    faults=("crash", "hang", "out-of-memory", "memory-hog"),
)
