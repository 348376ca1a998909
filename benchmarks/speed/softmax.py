"""The latency of a softmax layer divided by that of each linear method, at long sequences.

python -m benchmarks.speed.softmax [--quick] [--output FOLDER] [--budget SECONDS]
"""

from pathlib import Path

from benchmarks.speed import page, script
from benchmarks.speed.layers import (
    LINEAR,
    Sizes,
    call_of,
    export,
    hidden_states,
    make_layer,
    open_session,
)
from benchmarks.speed.ratios import Goal, median_ms, ratio
from benchmarks.speed.timing import interleave

GOALS = {8192: Goal(value=15, at_least=True), 16384: Goal(value=30, at_least=True)}
_RESERVE = 4 * 2**30  # bytes that others on this machine keep
_SCORES_HELD = 1  # ONNX Runtime takes the softmax in place


def lacking(length: int, sizes: Sizes) -> str | None:
    """Why softmax cannot be run at this length here: its scores are held whole."""
    needed = _SCORES_HELD * 4 * sizes.heads * length**2
    status = Path("/proc/meminfo")
    if not status.is_file():
        return None
    lines = status.read_text(encoding="ascii").splitlines()
    free = next(int(s.split()[1]) * 1024 for s in lines if s.startswith("MemAvailable:"))
    if free > needed + _RESERVE:
        return None
    return f"N = {length}: softmax needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"


def measure(
    folder: Path, sizes: Sizes, lengths: tuple[int, ...], budget_s: float
) -> script.Measured:
    """The table, and what could not be measured."""
    methods = ("softmax", *LINEAR)
    paths = {method: export(make_layer(method, sizes), folder) for method in methods}
    rows: list[page.Row] = []
    notes: list[str] = []
    for length in lengths:
        if (reason := lacking(length, sizes)) is not None:
            notes.append(reason)
            continue
        x = hidden_states(length, sizes)
        # New sessions for each length: an arena keeps what the longest run needed.
        calls = {m: call_of(open_session(p), {"hidden_states": x}) for m, p in paths.items()}
        times = interleave(calls, budget_s)
        for method in LINEAR:
            rows.append(
                page.ratio_row(
                    {"method": method, "N": length},
                    {
                        "softmax ms": median_ms(times["softmax"]),
                        "method ms": median_ms(times[method]),
                    },
                    ratio(times["softmax"], times[method]),
                    GOALS.get(length),
                )
            )
    return script.Measured(rows=rows, notes=notes)


def main() -> None:
    """Measure and write."""
    script.run(
        __doc__,
        measure,
        name="softmax",
        title="Softmax against the linear methods",
        text="How many times longer the softmax layer takes.",
        lengths=tuple(GOALS),
        budget_s=40,
        quick_lengths=(64, 128),
    )


if __name__ == "__main__":
    main()
