"""Does a module see one sequence of a batch when it computes another?"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from linattn_export.inputs.cases import CasePlan
from linattn_runtime_checks.contract.golden_pack import repeated
from linattn_runtime_checks.contract.verdict import error_of

_SAME = 1e-9
"""Far above what another order of sums changes in float64, far below what a check can see."""
_TRIED = 3
"""Lengths at which a module is asked whether it depends on the batch: 1 is often special."""

Axes = Mapping[str, int | list[int] | None]


def depends_on_batch(
    plans: Sequence[CasePlan],
    axes: Axes,
    drawn: Callable[[CasePlan], Mapping[str, Tensor]],
    run: Callable[[CasePlan, Mapping[str, Tensor]], Mapping[str, Any]],
) -> bool:
    """Whether a batch filled with its own sequences over and over is not its outputs repeated.

    Statistics over the batch are an example. Such a module is ``batch_dependent``, which a check
    says; its cases must not be filled up, or right numbers would look wrong beside it.

    Args:
        plans: the cases of a golden pack.
        axes: which axis of an input or output is the batch, as in the pack.
        drawn: the inputs of a plan.
        run: the float64 outputs, as numpy, for inputs of a plan.
    """
    filled = [plan for plan in plans if plan.batches != (plan.stored,) and not plan.hostile]
    normal = [plan for plan in filled if plan.family == "normal"]
    tried = sorted(normal, key=lambda plan: plan.sequence)[:_TRIED]
    tried += [plan for plan in filled if plan.family != "normal"]
    for plan in tried:
        inputs = drawn(plan)
        stored = run(plan, inputs)
        for batch in plan.batches:
            found = run(
                plan, {name: _filled(x, batch, axes.get(name, 0)) for name, x in inputs.items()}
            )
            for name, output in found.items():
                expected = repeated(stored[name], batch, axes.get(name, 0))
                if error_of(output, expected).row > _SAME:
                    return True
    return False


def _filled(tensor: Tensor, batch: int, axis: int | list[int] | None) -> Tensor:
    return torch.from_numpy(repeated(tensor.numpy(), batch, axis))
