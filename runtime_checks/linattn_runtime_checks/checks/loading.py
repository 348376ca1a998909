"""The file opens on the execution provider that was asked for.

What opens the file sees it; see ``judge``.
"""

from linattn_runtime_checks.checks.base import Check, When
from linattn_runtime_checks.contract.codes import Code

LOADING = Check(
    name="loading",
    title="the file opens on the execution provider that was asked for",
    codes=(Code.LOAD_FAILED, Code.PROVIDER_FALLBACK),
    when=When.CARRIED,
    faults=("cpu-instead-of-cuda",),
)
