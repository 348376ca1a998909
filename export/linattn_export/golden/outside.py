"""Inputs that a module itself does not take: told apart by what did it, their values or size."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from linattn_export.inputs.cases import CasePlan
from linattn_export.inputs.families import FAMILIES, SAMPLES
from linattn_export.live_module.reasons import place_in_own_code
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExportError, LinattnError, foreign
from linattn_runtime_checks.contract.manifest import Note


class OutsideDomain(ExportError):
    """The module raises on a hostile family, and takes usual numbers of the same sizes."""


@contextmanager
def own_failures(key: str, plan: CasePlan, usual: Callable[[], object] | None) -> Iterator[None]:
    """Say of inputs on which the module itself raises what is wrong with them.

    Args:
        key: of the subject.
        plan: of the case that runs inside.
        usual: runs the module on normal inputs of the same sizes; None for a model of ours, which
            takes every family.

    Raises:
        OutsideDomain: it is the values of a hostile family.
        ExportError: it is the sizes, or values that the SPEC promises.
    """
    try:
        yield
    except LinattnError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {_first_line(error)}{place_in_own_code(error)}"
        sizes = f"batch {plan.stored}, sequence {plan.sequence}"
        values = usual is not None and plan.family != "normal" and _passes(usual)
        if values and plan.hostile:
            raise OutsideDomain(said) from error
        title = FAMILIES[plan.family].title
        what = f"{sizes}, inputs of family {plan.family} ({title})" if values else sizes
        raise ExportError(f"{key}: PyTorch itself fails on {what}: {said}; {_fix(plan, values)}") \
            from error  # fmt: skip


def _passes(run: Callable[[], object]) -> bool:
    try:
        run()
    except Exception:  # whatever it is, usual numbers do not help
        return False
    return True


def _fix(plan: CasePlan, values: bool) -> str:
    if not values:
        return (
            "declare only sizes that the module takes, in [symbols]; where it is not the size, say "
            "which numbers an input may hold with range or positive"
        )
    if plan.family == SAMPLES:
        return "correct the samples of the SPEC"
    return "it takes usual inputs of these sizes, so let it take this mask too"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in foreign(str(error)).splitlines() if line.strip()]
    return lines[0] if lines else "no message"


def notes_of(left_out: Mapping[str, str]) -> list[Note]:
    """One note for each reason why families of inputs were left out.

    Reasons that differ in their numbers alone, such as the place of an element, are one.
    """
    first: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}
    for family, reason in left_out.items():
        shown = first.setdefault(re.sub(r"\d+", "0", reason), reason)
        reasons.setdefault(shown, []).append(family)
    return [
        Note(
            code=Code.OUTSIDE_DOMAIN,
            message=(
                f"the module itself raises on {', '.join(families)}: {reason}; such inputs are "
                "left out, and nothing is said of them"
            ),
        )
        for reason, families in reasons.items()
    ]
