"""The table of checks: one file and one line each, in the order in which they have their turns."""

from linattn_runtime_checks.checks.alone import ALONE
from linattn_runtime_checks.checks.base import Check
from linattn_runtime_checks.checks.baseline import BASELINE
from linattn_runtime_checks.checks.capture import CAPTURE
from linattn_runtime_checks.checks.causal import CAUSAL
from linattn_runtime_checks.checks.cost import COST
from linattn_runtime_checks.checks.deterministic import DETERMINISTIC
from linattn_runtime_checks.checks.equivariant import EQUIVARIANT
from linattn_runtime_checks.checks.files import FILES
from linattn_runtime_checks.checks.finite import FINITE
from linattn_runtime_checks.checks.frozen_axes import AXES
from linattn_runtime_checks.checks.held_out import TASK
from linattn_runtime_checks.checks.judged import JUDGED
from linattn_runtime_checks.checks.labels import LABELS
from linattn_runtime_checks.checks.loading import LOADING
from linattn_runtime_checks.checks.nan_padding import NAN_PADDING
from linattn_runtime_checks.checks.padding import PADDING
from linattn_runtime_checks.checks.parity import PARITY
from linattn_runtime_checks.checks.pieces import PIECES
from linattn_runtime_checks.checks.process import PROCESS
from linattn_runtime_checks.checks.refusal import REFUSAL
from linattn_runtime_checks.checks.signature import SIGNATURE
from linattn_runtime_checks.checks.verified_range import VERIFIED_RANGE

CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        FILES,
        PROCESS,
        LOADING,
        SIGNATURE,
        PARITY,
        AXES,
        FINITE,
        DETERMINISTIC,
        PADDING,
        NAN_PADDING,
        ALONE,
        EQUIVARIANT,
        CAUSAL,
        PIECES,
        REFUSAL,
        TASK,
        LABELS,
        COST,
        VERIFIED_RANGE,
        CAPTURE,
        JUDGED,
        BASELINE,
    )
}
