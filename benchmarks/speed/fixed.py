"""The latency of fixed artifacts divided by that of the dynamic one, at the same length.

python -m benchmarks.speed.fixed [--quick] [--output FOLDER] [--budget SECONDS]
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

LENGTHS = (128, 512, 1024, 4096)
GOAL = Goal(value=1.0)


def measure(
    folder: Path, sizes: Sizes, lengths: tuple[int, ...], budget_s: float
) -> script.Measured:
    """The table."""
    subjects = {method: make_layer(method, sizes, lengths) for method in LINEAR}
    dynamic = {m: open_session(export(subject, folder)) for m, subject in subjects.items()}
    rows = []
    for number, length in enumerate(lengths, start=1):
        x = hidden_states(length, sizes)
        calls = {m: call_of(session, {"hidden_states": x}) for m, session in dynamic.items()}
        for method, subject in subjects.items():
            session = open_session(export(subject, folder, number))
            calls[f"fixed {method}"] = call_of(session, {"hidden_states": x})
        times = interleave(calls, budget_s)
        for method in LINEAR:
            fixed = times[f"fixed {method}"]
            rows.append(
                page.ratio_row(
                    {"method": method, "N": length},
                    {"fixed ms": median_ms(fixed), "dynamic ms": median_ms(times[method])},
                    ratio(fixed, times[method]),
                    GOAL,
                )
            )
    return script.Measured(rows=rows)


def main() -> None:
    """Measure and write."""
    script.run(
        __doc__,
        measure,
        name="fixed",
        title="Fixed against dynamic artifacts",
        text="The artifact for one length against the one for all, at that length.",
        lengths=LENGTHS,
        budget_s=20,
    )


if __name__ == "__main__":
    main()
