"""An axis that is labelled dynamic while something inside was frozen at capture.

A loop over chunks that capture unrolled, or a branch on a size that it decided, leaves a graph
whose inputs are symbolic and whose numbers are right at the captured size only (and at those that
take the same path). The golden pack holds the captured sizes, crossed with others, to tell this
from plain wrong numbers: the graph is right wherever the axis has its captured size, and wrong at
other sizes.
"""

from collections.abc import Sequence, Set

from linattn_runtime_checks.checks.base import Check, Context, Problem, When, of_dynamic_axes
from linattn_runtime_checks.checks.signature import static_axes
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.results.report import CaseResult

_RIGHT = (Code.PASS, Code.RUNTIME_INEXACT)
_GROSS = 0.01
"""A relative error that is no matter of precision."""


def _run(context: Context) -> list[Problem]:
    declared = context.signature
    static = set() if declared is None else static_axes(context.artifact, declared)
    return frozen_axes(context.artifact, context.cases, labelled_static=static)


def frozen_axes(
    artifact: Artifact, cases: Sequence[CaseResult], *, labelled_static: Set[str]
) -> list[Problem]:
    """A problem for each axis that was frozen inside.

    Args:
        artifact: its manifest entry.
        cases: outcomes of one mode; those on N(0, 1) inputs count.
        labelled_static: axes that the file itself declares static; they have a code of their own.
    """
    plain = [case for case in cases if case.family == "normal"]
    found = []
    for name in ("sequence", "batch"):
        axis = artifact.axis(name)
        if axis.declared[0] == axis.declared[1] or name in labelled_static:
            continue
        by_size: dict[int, list[CaseResult]] = {}
        for case in plain:
            by_size.setdefault(getattr(case, name), []).append(case)
        right = sorted(s for s, of in by_size.items() if all(c.code in _RIGHT for c in of))
        wrong = sorted(s for s, of in by_size.items() if any(_grossly_wrong(c) for c in of))
        if axis.captured not in right or not wrong:
            continue
        message = (
            f"axis {name} is labelled dynamic but frozen inside: right at the captured "
            f"{axis.captured}{_also(right, axis.captured)}, wrong at {_listed(wrong)}"
        )
        found.append(Problem(code=Code.AXIS_FROZEN_INSIDE, message=message))
    return found


def _grossly_wrong(case: CaseResult) -> bool:
    if case.code is Code.PARITY_EXCEEDED:
        return case.row_error is not None and case.row_error > _GROSS
    return case.code in (Code.SHAPE_MISMATCH, Code.RUN_FAILED)


def _also(right: list[int], captured: int) -> str:
    others = [size for size in right if size != captured]
    return f" (and {_listed(others)})" if others else ""


def _listed(sizes: list[int], most: int = 8) -> str:
    more = f" and {len(sizes) - most} more" if len(sizes) > most else ""
    return ", ".join(map(str, sizes[:most])) + more


AXES = Check(
    name="axes",
    title="axes that are labelled dynamic were not frozen inside",
    codes=(Code.AXIS_FROZEN_INSIDE,),
    when=When.EVERY_MODE,
    applies=of_dynamic_axes,
    run=_run,
    faults=("count-frozen", "loop-unrolled"),
)
