"""How long the commands take to answer ``--help``, and a default build to be written and checked.

python -m benchmarks.speed.startup [--quick] [--output FOLDER] [--budget SECONDS]
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed import page
from benchmarks.speed.load import Watch
from benchmarks.speed.ratios import Goal, Ratio
from benchmarks.speed.timing import interleave, seconds

COMMANDS = ("linattn-export", "linattn-check")
HELP_GOAL, BUILD_GOAL = Goal(value=0.2), Goal(value=60)
_QUICK_BUILD = ("-m", "elu", "-f", "onnx", "-n", "16", "--dynamic", "1:32", "--batch", "1:2")


def call(*arguments: str) -> None:
    """Run a command of this environment to its end.

    Raises:
        CalledProcessError: it fails.
    """
    command = [str(Path(sys.executable).parent / arguments[0]), *arguments[1:]]
    subprocess.run(command, check=True, capture_output=True)


def spread(times: Sequence[float]) -> Ratio:
    """The median in seconds with its 95 % interval by bootstrap."""
    values = np.array(times)
    drawn = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.quantile(np.median(values[drawn], axis=1), [0.025, 0.975])
    return Ratio(
        value=float(np.median(values)), low=float(low), high=float(high), rounds=len(values)
    )


def row(what: str, found: Ratio, goal: Goal) -> page.Row:
    """One line of the table."""
    return {
        "what": what,
        "seconds": asdict(found),
        "runs": found.rounds,
        "goal": str(goal),
        "verdict": goal.judge(found.low, found.high),
    }


def measure(folder: Path, rounds: int, build: Sequence[str]) -> list[page.Row]:
    """The table."""
    calls: Any = {name: (lambda name=name: call(name, "--help")) for name in COMMANDS}
    times = interleave(calls, 0, rounds)
    rows = [row(f"{name} --help", spread(times[name]), HELP_GOAL) for name in COMMANDS]
    out = folder / "out"
    took = seconds(lambda: call("linattn-export", "build", "-o", str(out), "--no-latency", *build))
    manifest = json.loads((out / "linattn_manifest.json").read_text(encoding="utf-8"))
    once = Ratio(value=took, low=took, high=took, rounds=1)
    what = f"build and check {len(manifest['artifacts'])} artifacts, without latency"
    return [*rows, row(what, once, BUILD_GOAL)]


def main() -> None:
    """Measure and write."""
    options = page.options_of(__doc__, budget_s=0)
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        build = _QUICK_BUILD if options.quick else ()
        rows = measure(Path(folder), 2 if options.quick else 15, build)
    page.write(
        options.output,
        "startup",
        title="Start of the commands and a default build",
        text="Seconds from the start of the process to its end, files in the cache of the system; "
        "the median and its 95 % interval.",
        settings="Defaults of the commands",
        load=watch.stated(),
        rows=rows,
    )


if __name__ == "__main__":
    main()
