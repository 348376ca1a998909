"""The size of an axis as an exact polynomial in the batch and in the length of the sequence."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

Polynomial = dict[tuple[int, int], Fraction]
"""``{(i, j): c}`` is the sum of ``c * batch**i * sequence**j``; no ``c`` is zero."""


def constant(value: int) -> Polynomial:
    """The axis that always has ``value`` elements."""
    return {(0, 0): Fraction(value)} if value else {}


def interpolate(sizes: Mapping[tuple[int, int], int]) -> Polynomial | None:
    """The polynomial through sizes that were seen, by finite differences in exact fractions.

    Args:
        sizes: ``(batch, sequence)`` to elements, every batch with the same lengths.

    Returns:
        The polynomial; None where the sizes follow none whose last difference vanishes, that is,
        where no length is left over to confirm it.
    """
    batches = sorted({batch for batch, _ in sizes})
    lengths = sorted({sequence for _, sequence in sizes})
    by_length = [
        _through(lengths, [Fraction(sizes[batch, sequence]) for sequence in lengths])
        for batch in batches
    ]
    if len(lengths) > 1 and any(row[-1] for row in by_length):
        return None
    found: Polynomial = {}
    for j, coefficients in enumerate(zip(*by_length, strict=True)):
        for i, coefficient in enumerate(_through(batches, coefficients)):
            if coefficient:
                found[i, j] = coefficient
    return found


def _through(xs: Sequence[int], ys: Iterable[Fraction]) -> list[Fraction]:
    """Coefficients, lowest power first, of the polynomial of degree ``len(xs) - 1`` through ys."""
    differences = list(ys)
    for order in range(1, len(xs)):
        for i in range(len(xs) - 1, order - 1, -1):
            differences[i] = (differences[i] - differences[i - 1]) / (xs[i] - xs[i - order])
    powers = [Fraction(0)] * len(xs)
    for x, difference in zip(reversed(xs), reversed(differences), strict=True):
        shifted = [Fraction(0), *powers[:-1]]
        powers = [up - x * same for up, same in zip(shifted, powers, strict=True)]
        powers[0] += difference
    return powers


def degree(polynomial: Polynomial) -> int:
    """The highest power of the length; 0 for an axis that is always empty."""
    return max((j for _, j in polynomial), default=0)


def value(polynomial: Polynomial, batch: int, sequence: int) -> Fraction:
    """The size at one batch and length."""
    terms = (c * batch**i * sequence**j for (i, j), c in polynomial.items())
    return sum(terms, Fraction(0))


def text(polynomial: Polynomial) -> int | str:
    """As a person writes it: ``64``, ``batch``, ``4*sequence``, ``sequence + 1``."""
    if not polynomial.keys() - {(0, 0)}:
        size = polynomial.get((0, 0), Fraction(0))
        return int(size) if size.denominator == 1 else str(size)
    parts = []
    for i, j in sorted(polynomial, key=lambda powers: (-powers[1], -powers[0])):
        coefficient = polynomial[i, j]
        factors = ["batch"] * i + ["sequence"] * j
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        parts.append(("- " if coefficient < 0 else "+ ") + "*".join(factors))
    return " ".join(parts).removeprefix("+ ")
