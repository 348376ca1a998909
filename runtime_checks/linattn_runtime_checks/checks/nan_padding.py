"""Not even NaN in padded positions reaches the real ones, if that is promised."""

import numpy as np

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.checks.padding import Garbage, has_mask, has_tokens, leak_of
from linattn_runtime_checks.contract.codes import Code

_NAN = (Garbage("NaN", np.nan, 0.0),)


def _run(context: Context) -> list[Problem] | None:
    artifact = context.artifact
    if not any(spec.dtype.startswith("float") and has_tokens(spec) for spec in artifact.inputs):
        return None
    there, leak = leak_of(context, _NAN)
    if leak is not None:
        code = Code.PADDING_LEAKS if artifact.nan_padding else Code.NAN_PADDING
        return [Problem(code=code, message=leak)]
    return [] if there else None


NAN_PADDING = Check(
    name="nan_padding",
    title="not even NaN in padded positions reaches the real ones, if that is promised",
    codes=(Code.NAN_PADDING,),
    shares=(Code.PADDING_LEAKS,),
    applies=has_mask,
    run=_run,
    faults=("mask-on-value-only",),
)
