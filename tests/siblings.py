"""Cases of one kind: the first stand for it in the default suite, the slow suite has them all."""

from collections.abc import Iterable
from typing import Any

import pytest


def siblings(cases: Iterable[Any], quick: int = 1) -> list[Any]:
    """``cases`` for :func:`pytest.mark.parametrize`; all but the first ``quick`` are slow."""
    return [case if place < quick else as_slow(case) for place, case in enumerate(cases)]


def as_slow(case: Any) -> Any:
    """One case, a tuple of arguments or a single one, as a slow test."""
    if hasattr(case, "marks"):  # made by pytest.param
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
