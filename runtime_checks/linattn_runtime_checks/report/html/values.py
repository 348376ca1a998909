"""Values on the page: the worst of several, how they are written, and what they sort by."""

import math
import re
from collections.abc import Iterable

_UNITS = {"B": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3}
_NUMBER = re.compile(
    r"(?:[a-z]+ )?([-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|inf|nan))(?![\w])\s?([KMG]?i?B\b)?"
)


def worst(values: Iterable[float | None]) -> float | None:
    """The largest of ``values``; NaN is worse than any number, and None is no value."""
    known = [value for value in values if value is not None]
    if any(math.isnan(value) for value in known):
        return math.nan
    return max(known, default=None)


def short(value: float) -> str:
    """``value`` in few characters: ``0.46``, ``2.26``, ``31.7``, ``8324``, ``1.2e+05``, ``inf``."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if 0.01 <= abs(value) < 10_000:
        return f"{value:.{max(0, 2 - math.floor(math.log10(max(abs(value), 1))))}f}"
    return f"{value:.1e}"


def sort_key(text: str) -> float | None:
    """The number that ``text`` starts with, or its second word; sizes in bytes; None for none."""
    found = _NUMBER.match(text)
    if found is None:
        return None
    value = float(found.group(1).replace(",", ""))
    return value * _UNITS.get(found.group(2) or "B", 1.0)


def sentence(text: str) -> str:
    """``text`` with a capital letter before it and a full stop behind it."""
    first = text[:1] if text.startswith("x ") else text[:1].upper()  # x is a sign, not a word
    return f"{first}{text[1:].removesuffix('.')}."


def printable(text: str) -> str:
    """``text`` without the control characters that no XML may hold."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
