"""Which operators take which share of a run, by ONNX Runtime's own profile."""

import json
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.speed.layers import Array, open_session
from benchmarks.speed.page import Row

_RUNS = 5
_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")


def shares(path: Path, inputs: dict[str, Array], keys: Row) -> list[Row]:
    """Milliseconds a run and share by operator, largest first; what is below 1 % is one row."""
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(path, Path(folder) / "profile")
        for _ in range(_RUNS + 1):
            session.run(dict(inputs))
        events = json.loads(Path(session.session.end_profiling()).read_text(encoding="utf-8"))
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            found[event["args"]["op_name"]].append(event["dur"] / 1e3)
    # The first run allocates: of each operator the last runs are kept.
    kept = {op: times[len(times) // (_RUNS + 1) :] for op, times in found.items()}
    total = sum(sum(times) for times in kept.values())
    rows: list[Row] = []
    rest = 0.0
    for op, times in sorted(kept.items(), key=lambda item: -sum(item[1])):
        share = sum(times) / total
        if share < 0.01:
            rest += sum(times)
            continue
        rows.append(_row(keys, op, len(times) // _RUNS, sum(times), share))
    products = sum(sum(times) for op, times in kept.items() if op in _PRODUCTS)
    rows.append(_row(keys, "others", None, rest, rest / total))
    rows.append(_row(keys, "all but matrix products", None, total - products, 1 - products / total))
    return rows


def _row(keys: Row, operator: str, nodes: int | None, ms: float, share: float) -> Row:
    return {
        **keys,
        "operator": operator,
        "nodes": nodes,
        "ms a run": ms / _RUNS,
        "share": f"{share:.1%}",
    }
