"""Peak memory of a layer beyond its weights, by token, against the tensors it cannot do without.

    python -m benchmarks.speed.memory [--quick] [--output FOLDER] [--budget SECONDS]

Each method and length runs in a child process of its own, in ONNX Runtime, once: a session keeps
what its runs needed, and would hide what a longer one needs, or add to it. The slope of the peak
against the length is fitted by least squares, so that weights and code do not count. The interval
is that of the slope over repetitions. What must be alive at once is counted for operators
that are run one after the other, in the cheapest order, each element-wise one in place:

    kernel methods   hidden states, K, V: 3 M numbers a token. Then Q, the output of the heads and
                     the output with the hidden states, which the caller holds: 3 M again
    linformer        hidden states, Q, scores: 2 M + H R; K and V were compressed before
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.speed import page
from benchmarks.speed.layers import (
    FULL,
    LINEAR,
    QUICK,
    Sizes,
    export,
    hidden_states,
    make_layer,
    open_session,
)
from benchmarks.speed.load import Watch
from benchmarks.speed.ratios import Goal, Ratio
from linattn_runtime_checks.cost.memory import peaks

LENGTHS = (2048, 4096, 6144, 8192)
GOAL = Goal(value=1.5)
_REPETITIONS = 3


def alive(method: str, sizes: Sizes) -> tuple[int, str]:
    """Bytes a token of what must be alive at once, and in words."""
    if method == "linformer":
        return 4 * (2 * sizes.d_model + sizes.heads * sizes.rank), "2 M + H R"
    return 4 * 3 * sizes.d_model, "3 M"


def peak(path: Path, sizes: Sizes, length: int) -> int | None:
    """Bytes of one run in this process; None where peaks cannot be measured."""
    session = open_session(path)
    session.run({"hidden_states": hidden_states(16, sizes)})
    found = peaks(lambda n: session.run({"hidden_states": hidden_states(n, sizes)}), [length])
    return None if found is None else found[length]


def slope(path: Path, sizes: Sizes, lengths: tuple[int, ...]) -> float | None:
    """Bytes a token, from a process for each length; None where peaks cannot be measured."""
    found: list[int] = []
    for length in lengths:
        job = {"path": str(path), "quick": sizes == QUICK, "length": length}
        command = [sys.executable, "-m", "benchmarks.speed.memory", "--child", json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        value = json.loads(done.stdout)
        if value is None:
            return None
        found.append(value)
    return float(np.polynomial.Polynomial.fit(lengths, found, 1).convert().coef[1])


def measure(
    folder: Path, sizes: Sizes, lengths: tuple[int, ...], repetitions: int
) -> tuple[list[page.Row], list[str]]:
    """The table, and what could not be measured."""
    rows: list[page.Row] = []
    notes: list[str] = []
    for method in LINEAR:
        path = export(make_layer(method, sizes), folder)
        slopes: list[float] = []
        for _ in range(repetitions):
            value = slope(path, sizes, lengths)
            if value is None:
                notes.append(f"{method}: peaks cannot be measured on this system")
                break
            slopes.append(value)
        if not slopes:
            continue
        needed, words = alive(method, sizes)
        values = np.array(slopes) / needed
        found = Ratio(
            value=float(np.median(values)),
            low=float(values.min()),
            high=float(values.max()),
            rounds=len(values),
        )
        counts = {
            "peak bytes a token": float(np.median(slopes)),
            "must be alive": words,
            "bytes a token": needed,
        }
        rows.append(page.ratio_row({"method": method}, counts, found, GOAL))
    return rows, notes


def child(text: str) -> None:
    """Print the peak of one job."""
    job = json.loads(text)
    sizes = QUICK if job["quick"] else FULL
    print(json.dumps(peak(Path(job["path"]), sizes, job["length"])))


def main() -> None:
    """Measure and write."""
    options = page.options_of(__doc__, budget_s=0)
    sizes = QUICK if options.quick else FULL
    lengths = (64, 128, 192, 256) if options.quick else LENGTHS
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        rows, notes = measure(Path(folder), sizes, lengths, 1 if options.quick else _REPETITIONS)
    page.write(
        options.output,
        "memory",
        title="Peak memory against what must be alive at once",
        text="Slope of the peak of resident memory by token, beyond what the process held before "
        "the first run, divided by the bytes a token of the tensors that must be alive at once "
        "(input and output among them). A child process for each length; the interval is the "
        "smallest and the largest of several repetitions.",
        settings=f"{sizes.stated()}; N = {', '.join(map(str, lengths))}; "
        f"M = {sizes.d_model}, H = {sizes.heads}, R = {sizes.rank}",
        load=watch.stated(),
        rows=rows,
        notes=notes,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    else:
        main()
