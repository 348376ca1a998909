"""What other tools' comparison rules say of wrong attention outputs, and of right ones.

    python benchmarks/peer_rules.py [--render]

Faults are planted in the methods; each rule is given PyTorch eager's output and the faulty one for
the same input. As a control it is given right outputs: ONNX Runtime's, and eager's with keys and
values in reverse order. Writes ``results/peer_rules.json`` and, from it, ``docs/peer_rules.md``
(``--render``: the page alone). Where ``polygraphy`` can be imported, the statement of its rule
given here is compared with the real one on every pair. The parts are in ``peers/``; they are
found where ``linattn`` is installed from this folder (``pip install -e``).
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.measure import bench_of, margins, measure, right_outputs
from benchmarks.peers.page import PAGE, render
from benchmarks.peers.rules import real_polygraphy
from benchmarks.peers.settings import SETTINGS
from benchmarks.peers.sums import measure_sums
from linattn_runtime_checks.results import environment

RESULTS = Path(__file__).parent / "results" / "peer_rules.json"


def measure_all() -> dict[str, Any]:
    """All numbers of the page."""
    torch.set_num_threads(1)
    real, rows, multiples = real_polygraphy(), [], {}
    for setting in SETTINGS:
        bench = bench_of(setting)
        with tempfile.TemporaryDirectory() as folder:
            sources = right_outputs(bench.subject, Path(folder) / "model.onnx")
            rows += measure(bench, sources)
            multiples[setting.name] = margins(bench, sources)
    return {
        "environment": environment.describe(),
        "polygraphy": real[0] if real else None,
        "rows": rows,
        "margins": multiples,
        "sums": measure_sums(),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--render", action="store_true", help="write the page from the numbers")
    if not parser.parse_args().render:
        text = json.dumps(measure_all(), indent=1, allow_nan=False)
        RESULTS.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(render(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
