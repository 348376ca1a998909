"""The parity map: artifacts by families of inputs, the worst multiple in every cell.

A cell reads without its colour: the number is printed, a failure has a cross before it, and a
family on which nothing could be proven says so in words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.verdict import K
from linattn_runtime_checks.report.families import family_cell
from linattn_runtime_checks.report.html.values import short, worst
from linattn_runtime_checks.results.report import ArtifactResult, CaseResult

CROSS = "\N{MULTIPLICATION X}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCell:
    """One cell: what it prints, how it is tinted, and what it says of itself when asked."""

    text: str = ""
    look: str = "blank"
    told: str = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityMap:
    """Rows of cells under the names of the families."""

    families: list[str]
    rows: list[tuple[str, list[MapCell]]]


def parity_map(artifacts: Sequence[ArtifactResult]) -> ParityMap | None:
    """The map of ``artifacts``, which are of one method; None if nothing was compared."""
    found: dict[str, dict[str, list[CaseResult]]] = {}
    for artifact in artifacts:
        by_family = found.setdefault(f"{artifact.format}/{artifact.variant}", {})
        for result in artifact.runtimes:
            for case in result.cases:
                by_family.setdefault(case.family, []).append(case)
    families = list(dict.fromkeys(family for row in found.values() for family in row))
    if not families:
        return None
    rows = [(name, [map_cell(row.get(family, ())) for family in families])
            for name, row in found.items()]  # fmt: skip
    return ParityMap(families=families, rows=rows)


def map_cell(cases: Sequence[CaseResult]) -> MapCell:
    """The cell for ``cases``, all of one artifact and family."""
    if not cases:
        return MapCell()
    multiple = worst(case.multiple for case in cases)
    said = family_cell(cases)
    lengths = sorted({case.sequence for case in cases})
    told = "1 comparison" if len(cases) == 1 else f"{len(cases)} comparisons"
    told += f", length {lengths[0]}" + (f" to {lengths[-1]}" if len(lengths) > 1 else "")
    if said.startswith(("lost", "not finite")):
        return MapCell(text=said, look="lost", told=f"{told}; {CODES[Code.PRECISION_LOST].meaning}")
    code = next((code for code in Code if code.value == said), None)
    if code is not None and CODES[code].exit_code in (ExitCode.UNVERIFIED, ExitCode.PASS):
        return MapCell(text=f"? {said}", look="lost", told=f"{told}; {CODES[code].meaning}")
    exceeded = multiple is not None and not multiple <= K
    if code is not None or exceeded:
        # Among others of its family a case may fail for another reason than its numbers.
        text = short(multiple) if exceeded and multiple is not None else said
        why = CODES[code or Code.PARITY_EXCEEDED].meaning
        return MapCell(text=f"{CROSS} {text}", look="fail", told=f"{told}; {why}")
    if multiple is None:
        return MapCell(text="ok", look="low", told=f"{told}; compared without a multiple")
    return MapCell(text=short(multiple), look=_tint(multiple), told=told)


def _tint(multiple: float) -> str:
    """Where PyTorch's own error is the yardstick, a right artifact comes to 1.0 or very near."""
    return "low" if multiple < 1.1 else "middle" if multiple <= K / 2 else "high"
