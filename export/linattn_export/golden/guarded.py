"""Runs of the live module that are seen to leave their inputs alone."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from torch import Tensor

from linattn.pieces import in_pieces
from linattn_export.live_module.kept import same
from linattn_export.live_module.watches import writes_of
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.errors import ExportError


def guarded(subject: Subject) -> Callable[[dict[str, Tensor]], Any]:
    """The live module, which must leave its inputs as they are: they are what is stored.

    Raises:
        ExportError: it writes into one that the first runs did not see it write into.
    """
    call = subject.eager()

    def eager(inputs: dict[str, Tensor]) -> Any:
        given = {name: x.clone() for name, x in inputs.items()}
        # What a run leaves in a module of one's own is taken back, and pieces with it.
        with in_pieces(subject.module) if not subject.is_own else nullcontext():
            found = call(given)
        if not all(same(given[name], x) for name, x in inputs.items()):
            name, place = next(iter(writes_of(call, inputs).items()))
            shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in inputs.items())
            raise ExportError(
                f"{subject.key}: the module writes into its input {name}"
                f"{'' if place is None else f' at {place}'} for some inputs ({shapes}) and not for "
                f"others; let it write into {name}.clone()"
            )
        return found

    return eager
