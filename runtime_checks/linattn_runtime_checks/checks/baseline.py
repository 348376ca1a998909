"""Size and latency are those of the baseline, within the bands.

Found across two reports; see ``baseline``.
"""

from linattn_runtime_checks.checks.base import Check, When
from linattn_runtime_checks.contract.codes import Code

BASELINE = Check(
    name="baseline",
    title="size and latency are those of the baseline, within the bands",
    codes=(Code.SIZE_GREW, Code.LATENCY_GREW, Code.ARTIFACT_GONE, Code.BASELINE_INCOMPARABLE),
    when=When.FOLDER,
)
