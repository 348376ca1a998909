"""The latency of a layer divided by that of its matrix products alone (the GEMM floor).

python -m benchmarks.speed.floor [--quick] [--output FOLDER] [--budget SECONDS]
"""

from pathlib import Path

from benchmarks.speed import page, script
from benchmarks.speed.floor_graph import floor_inputs, write_floor
from benchmarks.speed.layers import (
    LINEAR,
    Sizes,
    call_of,
    export,
    hidden_states,
    make_layer,
    open_session,
)
from benchmarks.speed.profile import shares
from benchmarks.speed.ratios import Goal, median_ms, ratio
from benchmarks.speed.timing import interleave

LENGTHS = (128, 512, 4096, 8192)
PROFILED = (128, 4096)
_SHORT = 512
_TIGHT, _LOOSE, _OVERHEAD = Goal(value=1.08), Goal(value=1.15), Goal(value=1.30)


def goal_of(method: str, length: int) -> Goal:
    """What the layer should take at most, as a multiple of its products."""
    if length <= _SHORT:
        return _OVERHEAD
    return _LOOSE if method in ("efficient", "linformer") else _TIGHT


def measure(
    folder: Path, sizes: Sizes, lengths: tuple[int, ...], budget_s: float
) -> script.Measured:
    """The table and the profiles."""
    paths = {method: export(make_layer(method, sizes), folder) for method in LINEAR}
    sessions = {method: open_session(path) for method, path in paths.items()}
    rows, profiles = [], []
    for length in lengths:
        x = hidden_states(length, sizes)
        calls = {m: call_of(s, {"hidden_states": x}) for m, s in sessions.items()}
        for name in ("floor", "floor of linformer"):
            linformer = name != "floor"
            path = folder / f"{name}-{length}.onnx"
            write_floor(path, length, sizes, linformer=linformer)
            calls[name] = call_of(
                open_session(path), dict(floor_inputs(x, sizes, linformer=linformer))
            )
        times = interleave(calls, budget_s)
        for method in LINEAR:
            floor = times["floor of linformer" if method == "linformer" else "floor"]
            rows.append(
                page.ratio_row(
                    {"method": method, "N": length},
                    {"layer ms": median_ms(times[method]), "floor ms": median_ms(floor)},
                    ratio(times[method], floor),
                    goal_of(method, length),
                )
            )
        if length in PROFILED or length == lengths[0]:
            for method, path in paths.items():
                keys = {"method": method, "N": length}
                profiles += shares(path, {"hidden_states": x}, keys)
    return script.Measured(rows=rows, more={"Where the time goes": profiles})


def main() -> None:
    """Measure and write."""
    script.run(
        __doc__,
        measure,
        name="floor",
        title="Layer latency against the GEMM floor",
        text="The dynamic artifact of one layer against a graph, built in the same run, that holds "
        "only its matrix products and no transposes.",
        lengths=LENGTHS,
        budget_s=25,
    )


if __name__ == "__main__":
    main()
