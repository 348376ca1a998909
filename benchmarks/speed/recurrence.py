"""The recurrence in standard operators against the same as one node of ONNX Runtime.

    python -m benchmarks.speed.recurrence [--quick] [--output FOLDER] [--budget SECONDS]

One node is com.microsoft's LinearAttention in a file of opset 18, and LinearAttention-27 of the
ONNX standard. All take and return packed tensors. Outputs and states are compared before anything
is timed. Then causal attention against its form as public implementations have it, which holds the
states of all tokens at once.
"""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.speed import page
from benchmarks.speed.layers import FULL, QUICK, Array, Sizes, call_of, open_session
from benchmarks.speed.load import Watch
from benchmarks.speed.profile import shares
from benchmarks.speed.ratios import Goal, median_ms, ratio
from benchmarks.speed.recurrence_graphs import (
    RULES,
    Rule,
    causal_inputs,
    inputs_of,
    write_causal,
    write_operator,
    write_portable,
)
from benchmarks.speed.timing import interleave
from linattn_runtime_checks.runtimes.onnx_runtime import OrtSession

LENGTHS = (1024, 4096, 16384)
CAUSAL_LENGTH = 4096
_PROFILED = 4096
_SAME = 1e-5
_CAUSAL_GOAL = Goal(value=0.1)
_QUICK_BUDGET_S = 0.2


def goal_of(rule: Rule, against: str) -> Goal:
    """What the standard operators should take at most, as a multiple of the one node."""
    if against == "com.microsoft":
        return Goal(value=1.5 if rule.delta else 1.0)
    return Goal(value=0.35 if rule.delta else 0.25)


def difference(ours: OrtSession, theirs: OrtSession, inputs: dict[str, Array]) -> float:
    """The largest of all outputs, relative to theirs, in the 2-norm."""
    found = [list(session.run(dict(inputs)).values()) for session in (ours, theirs)]
    return max(
        float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))
        for a, b in zip(*found, strict=True)
    )


def require_same(what: str, ours: OrtSession, theirs: OrtSession, inputs: dict[str, Array]) -> None:
    """Nothing is timed that does not compute the same.

    Raises:
        SystemExit: it does not.
    """
    found = difference(ours, theirs, inputs)
    if not found < _SAME:
        raise SystemExit(f"{what}: outputs differ by {found:.1e}, so times say nothing")


def race(
    folder: Path, rule: Rule, sizes: Sizes, lengths: tuple[int, ...], budget_s: float
) -> tuple[list[page.Row], list[page.Row]]:
    """One rule: the rows, and where the time goes."""
    paths = {name: folder / f"{name}.onnx" for name in ("portable", "com.microsoft", "ai.onnx 27")}
    write_portable(paths["portable"], rule, sizes)
    write_operator(paths["com.microsoft"], rule, sizes, standard=False)
    write_operator(paths["ai.onnx 27"], rule, sizes, standard=True)
    rows: list[page.Row] = []
    profile: list[page.Row] = []
    for length in lengths:
        inputs = inputs_of(rule, length, sizes)
        sessions = {name: open_session(path) for name, path in paths.items()}
        others = [name for name in paths if name != "portable"]
        for name in others:
            require_same(f"{rule.name}, {name}", sessions["portable"], sessions[name], inputs)
        times = interleave({n: call_of(s, inputs) for n, s in sessions.items()}, budget_s)
        for name in others:
            rows.append(
                page.ratio_row(
                    {"rule": rule.name, "N": length, "against": name},
                    {
                        "portable ms": median_ms(times["portable"]),
                        "one node ms": median_ms(times[name]),
                    },
                    ratio(times["portable"], times[name]),
                    goal_of(rule, name),
                )
            )
        if length == _PROFILED or length == lengths[0] != LENGTHS[0]:
            profile += shares(paths["portable"], inputs, {"rule": rule.name, "N": length})
    return rows, profile


def causal(folder: Path, sizes: Sizes, length: int, budget_s: float) -> page.Row:
    """Causal attention against the form with all states at once."""
    paths = {True: folder / "causal_elu.onnx", False: folder / "cumsum.onnx"}
    for ours, path in paths.items():
        write_causal(path, sizes, ours=ours)
    inputs = causal_inputs(length, sizes)
    sessions = {ours: open_session(path) for ours, path in paths.items()}
    require_same("causal elu", sessions[True], sessions[False], inputs)
    times = interleave({str(o): call_of(s, inputs) for o, s in sessions.items()}, budget_s)
    return page.ratio_row(
        {"method": "causal_elu", "N": length},
        {"ours ms": median_ms(times["True"]), "cumulative sum ms": median_ms(times["False"])},
        ratio(times["True"], times["False"]),
        _CAUSAL_GOAL,
    )


def main() -> None:
    """Measure and write."""
    options = page.options_of(__doc__, budget_s=8)
    sizes = QUICK if options.quick else FULL
    lengths = (40, 100) if options.quick else LENGTHS
    budget_s = _QUICK_BUDGET_S if options.quick else options.budget
    watch = Watch()
    rows: list[page.Row] = []
    profiles: list[page.Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for rule in RULES[:2] if options.quick else RULES:
            found, profile = race(Path(folder), rule, sizes, lengths, budget_s)
            rows += found
            profiles += profile
        length = lengths[-1] if options.quick else CAUSAL_LENGTH
        causal_row = causal(Path(folder), sizes, length, budget_s)
    page.write(
        options.output,
        "recurrence",
        title="The recurrence in standard operators against one node",
        text=f"The time of the graph in standard operators, opset 18, as a multiple of that of the "
        f"same recurrence as one node. Outputs and states agree within {_SAME:g}. {page.PAIRED}",
        settings=sizes.stated(),
        load=watch.stated(),
        rows=rows,
        more={
            "Causal attention against all states at once": [causal_row],
            "Where the time goes": profiles,
        },
        notes=NOTES,
    )


NOTES = (
    "The node runs each head by itself, on one core from the first token to the last: a second "
    "core halves its time. A second thread was seen to take the graph of the linear rule from 22 "
    "to 19 ms only; a chunk's products are some ten to a hundred microseconds each, presumably too "
    "little for threads that have to be woken.",
    "Scan in the profiles counts what its body does a second time, beside the operators themselves."
    " The body runs once for each chunk.",
)


if __name__ == "__main__":
    main()
