"""How every method did on every family of inputs."""

import math
from collections.abc import Sequence

from linattn_runtime_checks.contract.codes import CODES, Code, fails_nothing
from linattn_runtime_checks.report.table import Table
from linattn_runtime_checks.results.report import CaseResult, Report

_ORDER = list(CODES)


def family_table(report: Report) -> Table | None:
    """Per family, one column for each method: the worst of all artifacts and runtimes."""
    cases = cases_by_family(report)
    if not cases:
        return None
    methods = list(dict.fromkeys(method for method, _ in cases))
    families = dict.fromkeys(family for _, family in cases)
    rows = [
        (family, *(family_cell(cases.get((method, family), ())) for method in methods))
        for family in families
    ]
    note = (
        "the largest error over all artifacts, lengths, runtimes and modes, as a multiple of what "
        "rounding costs on that input (at most 4 passes), or the code of what failed; lost: on "
        "this hostile family rounding alone moves PyTorch's own output by that share, so nothing "
        "is proven; not finite: PyTorch itself gives NaN or infinity; runtime_inexact: the file is "
        "right and a kernel of the runtime is not exact; -: not an input of it"
    )
    return Table(title="Input families", headings=("family", *methods), rows=rows, note=note)


def cases_by_family(report: Report) -> dict[tuple[str, str], list[CaseResult]]:
    """All cases by ``model/method`` and family, in the order of the report."""
    found: dict[tuple[str, str], list[CaseResult]] = {}
    for artifact in report.artifacts:
        for runtime in artifact.runtimes:
            for case in runtime.cases:
                key = (f"{artifact.model}/{artifact.method}", case.family)
                found.setdefault(key, []).append(case)
    return found


def family_cell(cases: Sequence[CaseResult]) -> str:
    """The worst of ``cases`` in a word: ``1.02x``, a code, ``lost 12 %``; ``-`` for none."""
    failed = {case.code for case in cases if not fails_nothing(case.code)}
    if failed:
        return min(failed, key=_ORDER.index)
    lost = [case.rounding for case in cases if case.code is Code.PRECISION_LOST]
    if lost:
        share = max(math.inf if part is None else part for part in lost)
        return f"lost {100 * share:.3g} %" if math.isfinite(share) else "not finite"
    if any(case.code is Code.RUNTIME_INEXACT for case in cases):
        return Code.RUNTIME_INEXACT
    if any(case.code is Code.OUTSIDE_DOMAIN for case in cases):
        return "not finite"
    multiples = [case.multiple for case in cases if case.multiple is not None]
    return f"{max(multiples):.2f}x" if multiples else "-"
