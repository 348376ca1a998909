"""The page ``docs/peer_rules.md``, from the numbers."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.measure import SEEDS, Row
from benchmarks.peers.rules import OWN, PEERS
from benchmarks.peers.settings import LENGTHS
from benchmarks.peers.sums import KEPT
from linattn_runtime_checks.contract.verdict import K

PAGE = Path(__file__).parents[2] / "docs" / "peer_rules.md"

OPENING = """\
# What fixed tolerances say of wrong attention

{faults} faults are planted in attention modules, each judged at N = {lengths} tokens. Every rule \
gets PyTorch eager's float32 output and the faulty one for the same input, drawn from N(0, 1), \
batch 1, 4 heads of 64. As a control it gets right outputs: ONNX Runtime's for the same module, \
optimiser on, and eager's with keys and values in reverse order, which changes only the order of \
sums.
"""

RULES = """
- **{own}**: the error against float64 is at most {k:g} times what rounding costs this module on \
this input (`runtime_checks/linattn_runtime_checks/contract/verdict.py`; constants: \
[calibration](../benchmarks/results/verdict_calibration.md)). The multiple of that cost is in \
brackets: above {k:g} rejects.

torch's, numpy's and {own}'s comparisons are the installed ones. {checked} optimum-onnx and timm \
are numpy calls with the arguments named above, read in their sources; the tools were not run.

## Wrong outputs

**passes** marks a wrong output that a rule lets through. rms is the size of eager's output; the \
largest difference is that of the faulty output to it.
"""

READING = """
## How to read this

Outputs of normalised attention shrink like 1/sqrt(N) while a tolerance stays, so a fault that is \
seen at N = 64 can pass at N = 4096. Outputs without a normaliser grow with N, and rounding alone \
exceeds the tolerance. A relative difference per element is large wherever an element happens to \
be near zero: torch.onnx rejects right outputs for it, and some wrong ones only for it. Gross \
faults, such as a query that is ignored, are seen by every rule here; what fixed tolerances pass \
is the subtle ones, and NaN in torch.onnx.

The faults were chosen by this project, one seed each. The rules are the defaults: other \
tolerances can be set in optimum-onnx and Polygraphy. Here all rules see the same lengths; the \
tools themselves compare at the shape of the example input. {own} needs a float64 run of the \
module, the others do not.

## Made by

`python benchmarks/peer_rules.py`, seed 0, one thread, {versions}, {processor}. Numbers: \
`benchmarks/results/peer_rules.json`.
"""


def header(*names: str, words: int = 1) -> list[str]:
    """The two lines that open a table: ``words`` columns of text, then numbers."""
    rule = " --- |" * words + " ---: |" * (len(names) - words)
    return ["", f"| {' | '.join(names)} |", f"|{rule}"]


def counts(wrong: list[Row], right: list[Row], faults: int) -> list[str]:
    """What each rule gets wrong, counted."""
    lines = header(
        "rule", "wrong outputs passed", "faults passed at some N", "right outputs rejected"
    )
    for rule in (*PEERS, OWN):
        missed = [row for row in wrong if row["passes"][rule]]
        some = len({(row["setting"], row["output"]) for row in missed})
        alarms = sum(not row["passes"][rule] for row in right)
        lines.append(
            f"| {rule} | {len(missed)} of {len(wrong)} | {some} of {faults} | "
            f"{alarms} of {len(right)} |"
        )
    return lines


def rules(result: dict[str, Any]) -> list[str]:
    """What the rules are, and how they were had."""
    rows = result["rows"]
    checked = "Polygraphy was not installed for this run: its rule is as stated here, unchecked."
    if result["polygraphy"]:
        agreed = sum(row["real polygraphy passes"] is row["passes"]["Polygraphy"] for row in rows)
        checked = (
            f"Polygraphy {result['polygraphy']} itself (`SimpleCompareFunc()`) gave the verdict "
            f"of the rule as stated here for {agreed} of {len(rows)} pairs."
        )
    peers = [f"- **{rule}**: {' '.join((f.__doc__ or '').split())}" for rule, f in PEERS.items()]
    return ["", "## The rules", "", *peers, RULES.strip().format(own=OWN, k=K, checked=checked)]


def table(title: str, rows: list[Row]) -> list[str]:
    """A Markdown table of pairs; what a rule gets wrong is in bold."""
    lines = [
        "",
        f"| {' | '.join([title, 'N', 'rms', 'largest difference', *PEERS, OWN])} |",
        "| --- |" + " ---: |" * 3 + " --- |" * (len(PEERS) + 1),
    ]
    for row in sorted(rows, key=lambda row: (row["setting"], row["output"], row["length"])):
        difference = row["largest difference"]
        cells = [
            f"{row['setting']}: {row['output']}",
            str(row["length"]),
            f"{row['rms']:.2g}",
            "NaN" if difference is None else f"{difference:.1e}",
        ]
        for passes in row["passes"].values():
            word = "passes" if passes else "rejects"
            cells.append(f"**{word}**" if passes is row["wrong"] else word)
        multiple = row["multiple"]
        cells[-1] += f" ({row['code']})" if multiple is None else f" ({multiple:.2g}x)"
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def controls(right: list[Row]) -> list[str]:
    """The right outputs that some rule rejects."""
    alarmed = [row for row in right if not all(row["passes"].values())]
    return [
        "",
        "## Right outputs",
        "",
        f"**rejects** marks a false alarm. The other {len(right) - len(alarmed)} of {len(right)} "
        "right outputs pass every rule; they are in the JSON.",
        *table("source", alarmed),
    ]


def margins(result: dict[str, Any]) -> list[str]:
    """How far right and wrong outputs are from the line."""
    wrong = [row["multiple"] for row in result["rows"] if row["wrong"]]
    smallest = min(multiple for multiple in wrong if multiple is not None)
    largest = max(row["multiple"] for row in result["rows"] if not row["wrong"])
    lines = [
        "",
        f"## How close {OWN} is",
        "",
        f"The smallest multiple of a wrong output above is {smallest:.2g}, the largest of a right "
        f"one {largest:.2g}; the line is at {K:g}. ONNX Runtime's right output at "
        f"N = {LENGTHS[-1]} with {len(SEEDS)} seeds of the input:",
        *header("setting", "median multiple", "largest", f"above {K:g} (false alarms)"),
    ]
    for name, multiples in sorted(result["margins"].items()):
        lines.append(f"| {name} | {spread(multiples)} | {alarms(multiples)} |")
    return lines


def spread(multiples: list[float]) -> str:
    """Two cells: median and largest."""
    return f"{np.median(multiples):.2f} | {max(multiples):.2f}"


def alarms(multiples: list[float]) -> str:
    """A cell: how many of them are false alarms."""
    count = sum(multiple > K for multiple in multiples)
    return f"{f'**{count}**' if count else 0} of {len(multiples)}"


def sums(rows: list[Row]) -> list[str]:
    """What the way to sum over tokens changes."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["length"], row["sum"]), []).append(row)
    strict = max(row["by ReduceSum's yardstick"] for row in rows if row["sum"] == KEPT)
    lines = [
        "",
        "How sums over tokens are written decides much of this. ONNX Runtime's ReduceSum loses "
        "accuracy with N, which gives false alarms. In a product with one row of ones it is "
        "PyTorch eager that does, which loosens the yardstick. linattn multiplies by eight equal "
        "rows and keeps one (`token_sum` in `linattn/numerics.py`): there neither error grows "
        "much. Taylor attention, each way judged by the eager run that sums in the same way; "
        f"errors are the largest of a row against float64; medians of {len(SEEDS)} seeds:",
        *header(
            "sum over tokens",
            "N",
            "eager's error",
            "ONNX Runtime's error",
            "median multiple",
            "largest",
            f"above {K:g} (false alarms)",
        ),
    ]
    for (length, kind), group in sorted(groups.items(), key=lambda item: item[0][0]):
        multiples = [row["multiple"] for row in group]
        errors = (np.median([row[key] for row in group]) for key in ("eager", "ONNX Runtime"))
        cells = [kind, str(length), *(f"{error:.1e}" for error in errors)]
        lines.append(f"| {' | '.join(cells)} | {spread(multiples)} | {alarms(multiples)} |")
    return [
        *lines,
        "",
        f"By the tighter yardstick that goes with ReduceSum, {KEPT} come to at most {strict:.1f}.",
    ]


def render(result: dict[str, Any]) -> str:
    """The page."""
    rows, where = result["rows"], result["environment"]
    wrong = [row for row in rows if row["wrong"]]
    right = [row for row in rows if not row["wrong"]]
    faults = len({(row["setting"], row["output"]) for row in wrong})
    packages = ("python", "torch", "onnx", "onnxruntime", "numpy")
    versions = ", ".join(f"{name} {where[name]}" for name in packages)
    lines = [
        OPENING.strip().format(faults=faults, lengths=", ".join(map(str, LENGTHS))),
        *counts(wrong, right, faults),
        *rules(result),
        *table("fault", wrong),
        *controls(right),
        *margins(result),
        *sums(result["sums"]),
        "",
        READING.strip().format(own=OWN, versions=versions, processor=where["processor"]),
    ]
    return "\n".join(lines) + "\n"
