"""How curves and bars are drawn; matplotlib is imported here and nowhere else.

Curves differ by line style and marker as well as by colour, so that they can be told apart on
paper and by those who see no colours.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from linattn_runtime_checks.cost.exponent import power
from linattn_runtime_checks.report.html.curves import BASELINE, Curve
from linattn_runtime_checks.report.html.svg import PALETTE, SERIES, inline_svg, settings
from linattn_runtime_checks.report.html.values import printable
from linattn_runtime_checks.report.tables import size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_IN = 4.1
_HEIGHT_IN = 2.75
_MARGINS_IN = {"left": 0.62, "right": 0.12, "top": 0.34, "bottom": 0.44}
_LEGEND_ROW_IN = 0.17
_BAR_IN = 0.2
_LETTER_IN = 0.055
_STYLES = (
    ("--", "s"), ("-", "o"), ("-.", "^"), (":", "D"), ((0, (6, 1.5)), "v"),
    ((0, (3, 1, 1, 1, 1, 1)), "P"), ((0, (1, 1)), "X"), ((0, (8, 2, 2, 2)), "*"),
)  # fmt: skip
_TICKS = 7
_LONG_LABEL = 16


def growth_svg(
    name: str,
    label: str,
    curves: Sequence[Curve],
    *,
    unit: str,
    methods: Sequence[str],
    crossover: int | None = None,
) -> str:
    """Curves over the length, both axes logarithmic.

    Args:
        name: unique on the page.
        label: what the figure shows, in words.
        curves: at least one, each with a point.
        unit: ``ms`` or ``bytes``.
        methods: of the model, so that each looks the same in all of its figures.
        crossover: a length to mark.
    """
    with _matplotlib():
        columns = 1 if any(len(curve.label) > _LONG_LABEL for curve in curves) else 2
        legend_rows = math.ceil(len(curves) / columns)
        figure, axes = _figure(_HEIGHT_IN + _LEGEND_ROW_IN * legend_rows, legend_rows)
        others = [method for method in methods if method != BASELINE]
        seen: Counter[str] = Counter()
        for index, curve in enumerate(curves):
            baseline = curve.method == BASELINE
            place = 0 if baseline else 1 + others.index(curve.method)
            # The variants of a method, such as forms of a recurrence, take the styles after it.
            style = 0 if baseline else 1 + (place - 1 + seen[curve.method]) % (len(SERIES) - 1)
            seen[curve.method] += 1
            _draw_curve(axes, curve, style, f"curve-{index}")
        if crossover is not None:
            _mark(axes, crossover)
        _scale(axes, curves, unit)
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.14, 1.0), ncols=columns, frameon=False,
            handlelength=3.2, borderaxespad=0.3, columnspacing=1.2, labelcolor=PALETTE["ink"],
        )  # fmt: skip
        return inline_svg(figure, name, label)


def bars_svg(name: str, label: str, bars: Sequence[tuple[str, int]]) -> str:
    """Sizes in bytes as horizontal bars, the number at the end of each."""
    with _matplotlib():
        left = min(0.35 + _LETTER_IN * max((len(text) for text, _ in bars), default=0), 2.2)
        height = _BAR_IN * len(bars) + 0.2
        figure, axes = _figure(height, 0, left=left, top=0.06, bottom=0.06)
        largest = max((size for _, size in bars), default=1) or 1
        for index, (text, size) in enumerate(bars):
            (bar,) = axes.barh(index, size, height=0.66, color=PALETTE["s1"])
            bar.set_gid(f"bar-{index}")
            axes.text(size + largest * 0.015, index, size_text(size), va="center",
                      color=PALETTE["ink"])  # fmt: skip
            axes.text(-largest * 0.02, index, printable(text), va="center", ha="right",
                      color=PALETTE["ink"])  # fmt: skip
        axes.set_xlim(0, largest * 1.28)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_axis_off()
        return inline_svg(figure, name, label)


@contextmanager
def _matplotlib() -> Iterator[None]:
    """Matplotlib as it is without a user's configuration, with our settings."""
    import matplotlib

    plain: dict[Any, Any] = {**matplotlib.rcParamsDefault, **settings()}
    del plain["backend"]  # is chosen by what a figure is saved as
    with matplotlib.rc_context(plain), warnings.catch_warnings():
        # The reader's fonts draw the text; here it is only measured.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _figure(height: float, legend_rows: int, **margins: float) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    space = _MARGINS_IN | margins
    top = space["top"] if not legend_rows else 0.12 + _LEGEND_ROW_IN * legend_rows
    figure = Figure(figsize=(_WIDTH_IN, height))
    axes = figure.add_axes((
        space["left"] / _WIDTH_IN,
        space["bottom"] / height,
        1 - (space["left"] + space["right"]) / _WIDTH_IN,
        1 - (top + space["bottom"]) / height,
    ))  # fmt: skip
    return figure, axes


def _draw_curve(axes: "Axes", curve: Curve, style: int, gid: str) -> None:
    line, marker = _STYLES[style]
    colour = PALETTE[SERIES[style]]
    size, face = 4.6, PALETTE["surface"] if style == 0 else colour
    if not curve.joined:  # larger and hollow: they lie on the points of the dynamic artifact
        line, marker, size, face = "none", "D", 7.5, "none"
    label = ", ".join(filter(None, (curve.label, power(curve.exponent))))
    (drawn,) = axes.plot(
        [point.length for point in curve.points],
        [point.value for point in curve.points],
        linestyle=line, marker=marker, color=colour, linewidth=1.6, markersize=size,
        markerfacecolor=face, label=printable(label), zorder=3,
    )  # fmt: skip
    drawn.set_gid(gid)
    known = [p for p in curve.points if p.low is not None and p.high is not None and p.low > 0]
    if known:
        lows = [point.low or point.value for point in known]
        highs = [point.high or point.value for point in known]
        axes.vlines([point.length for point in known], lows, highs, color=colour, linewidth=1.0)


def _mark(axes: "Axes", length: int) -> None:
    line = axes.axvline(length, color=PALETTE["ink"], linewidth=0.9, linestyle=(0, (1, 2)))
    line.set_gid("crossover-0")
    axes.annotate(
        f"faster from {length}", (length, 0.03), xycoords=("data", "axes fraction"),
        xytext=(3, 0), textcoords="offset points", color=PALETTE["ink"],
    )  # fmt: skip


def _scale(axes: "Axes", curves: Sequence[Curve], unit: str) -> None:
    """Logarithmic axes with few ticks, at round values and at lengths that were measured."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    lengths = sorted({point.length for curve in curves for point in curve.points})
    values = [point.value for curve in curves for point in curve.points]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(lengths[0] / 1.25, lengths[-1] * 1.25)
    axes.set_ylim(min(values) / 1.6, max(values) * 1.6)
    ticks = round_values(*axes.get_ylim(), base=10 if unit == "ms" else 2)
    axes.xaxis.set_major_locator(FixedLocator(_apart(lengths)))
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:g}" if unit == "ms" else _bytes(value))
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(True, color=PALETTE["line"], linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=PALETTE["muted"])
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(PALETTE["muted"])
    axes.set_xlabel("length in tokens", color=PALETTE["muted"], labelpad=2)
    axes.set_ylabel("median ms" if unit == "ms" else "peak memory", color=PALETTE["muted"],
                    labelpad=2)  # fmt: skip


def round_values(low: float, high: float, *, base: int) -> list[float]:
    """At most seven round values between ``low`` and ``high``, both above zero.

    Powers of the base; where those are too many, every second or third; where they are too few
    and the base is ten, twice and five times them as well.
    """
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    powers = [float(base) ** power for power in range(first, last + 1)]
    if base == 10 and last - first <= 2:
        powers = [power * factor for power in powers for factor in (1, 2, 5)]
    inside = [value for value in powers if low <= value <= high]
    step = math.ceil(len(inside) / _TICKS) or 1
    return inside[::-step][::-1]


def _apart(lengths: Sequence[int]) -> list[int]:
    """Those of ``lengths`` whose labels do not touch, from the longest down."""
    span = math.log(lengths[-1] / lengths[0]) or 1.0
    chosen: list[int] = []
    for length in reversed(lengths):
        if not chosen or math.log(chosen[-1] / length) / span > 0.11:
            chosen.append(length)
    return chosen[::-1]


def _bytes(value: float) -> str:
    return size_text(round(value)).replace(".0 ", " ")
