"""Peak memory of a prefill by its length: linear, and far below the states of all tokens.

    python -m benchmarks.speed.recurrence_memory [--quick] [--output FOLDER]

Each rule and length runs in a child process of its own, in ONNX Runtime, once, as in
``memory.py``. The first ratio is the growth of the peak from 8192 to 16384 tokens divided by that
from 4096 to 8192: 2 where the peak is linear, 4 where it grows as the square. The second is the
peak divided by a tensor of N x H x D x D, which forms with all states at once hold.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.speed import page
from benchmarks.speed.layers import FULL, QUICK, Sizes, open_session
from benchmarks.speed.load import Watch
from benchmarks.speed.ratios import Goal, Ratio
from benchmarks.speed.recurrence_graphs import RULES, Rule, inputs_of, write_portable
from linattn_runtime_checks.cost.memory import peaks

LENGTHS = (4096, 8192, 16384)
_LINEAR, _FAR_BELOW = Goal(value=2.2), Goal(value=0.2)
_REPETITIONS = 3


def peak(path: Path, rule: Rule, sizes: Sizes, length: int) -> int | None:
    """Bytes of one run in this process; None where peaks cannot be measured."""
    session = open_session(path)
    session.run(dict(inputs_of(rule, 16, sizes)))
    found = peaks(lambda n: session.run(dict(inputs_of(rule, n, sizes))), [length])
    return None if found is None else found[length]


def peaks_of(path: Path, rule: Rule, quick: bool, lengths: tuple[int, ...]) -> list[int] | None:
    """The peak at each length, from a process for each; None where it cannot be measured."""
    found: list[int] = []
    for length in lengths:
        job = {"path": str(path), "rule": RULES.index(rule), "quick": quick, "length": length}
        module = "benchmarks.speed.recurrence_memory"
        command = [sys.executable, "-m", module, "--child", json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        value = json.loads(done.stdout)
        if value is None:
            return None
        found.append(value)
    return found


def over(values: list[float]) -> Ratio:
    """The median of repetitions; the interval is the smallest and the largest."""
    return Ratio(
        value=float(np.median(values)), low=min(values), high=max(values), rounds=len(values)
    )


def measure(
    folder: Path, quick: bool, lengths: tuple[int, ...], repetitions: int
) -> tuple[list[page.Row], list[page.Row], list[str]]:
    """Both tables, and what could not be measured."""
    sizes = QUICK if quick else FULL
    growth: list[page.Row] = []
    share: list[page.Row] = []
    notes: list[str] = []
    all_states = 4 * lengths[-1] * sizes.d_model * sizes.width
    for rule in RULES[:2] if quick else RULES:
        path = folder / "portable.onnx"
        write_portable(path, rule, sizes)
        runs = [peaks_of(path, rule, quick, lengths) for _ in range(repetitions)]
        found = [run for run in runs if run is not None]
        if len(found) < len(runs):
            notes.append(f"{rule.name}: peaks cannot be measured on this system")
            continue
        middle = np.median(np.array(found), axis=0)
        keys: page.Row = {"rule": rule.name}
        megabytes = {
            f"MB at {length}": float(value) / 1e6
            for length, value in zip(lengths, middle, strict=True)
        }
        grown = [(last - second) / max(second - first, 1) for first, second, last in found]
        growth.append(page.ratio_row(keys, megabytes, over(grown), _LINEAR))
        part = [last / all_states for _, _, last in found]
        sides = {f"MB at {lengths[-1]}": float(middle[-1]) / 1e6, "all states MB": all_states / 1e6}
        share.append(page.ratio_row(keys, sides, over(part), _FAR_BELOW))
    return growth, share, notes


def child(text: str) -> None:
    """Print the peak of one job."""
    job = json.loads(text)
    sizes = QUICK if job["quick"] else FULL
    print(json.dumps(peak(Path(job["path"]), RULES[job["rule"]], sizes, job["length"])))


def main() -> None:
    """Measure and write."""
    options = page.options_of(__doc__, budget_s=0)
    lengths = (64, 128, 256) if options.quick else LENGTHS
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        growth, share, notes = measure(
            Path(folder), options.quick, lengths, 1 if options.quick else _REPETITIONS
        )
    page.write(
        options.output,
        "recurrence_memory",
        title="Peak memory of a prefill by its length",
        text="Peak of resident memory beyond what the process held before the run, inputs and "
        "outputs among it; a child process for each length. The ratio is the growth over the "
        "second doubling divided by that over the first: 2 where memory is linear. Intervals are "
        "the smallest and the largest of several repetitions.",
        settings=f"{(QUICK if options.quick else FULL).stated()}; N = "
        f"{', '.join(map(str, lengths))}",
        load=watch.stated(),
        rows=growth,
        more={"Against a tensor of the states of all tokens": share},
        notes=notes,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    else:
        main()
