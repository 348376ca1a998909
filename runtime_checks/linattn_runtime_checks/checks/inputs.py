"""Which inputs of a golden pack a check tries again, changed."""

from collections.abc import Sequence

from linattn_runtime_checks.contract.golden_pack import Case, Reference
from linattn_runtime_checks.contract.manifest import Artifact

PADDED = ("right-padding", "left-padding", "inside-padding", "one-token", "one-empty")
"""Families of masks that have real and padded tokens."""
_USUAL_TOKENS = 256


def cases_for(artifact: Artifact, reference: Reference) -> list[Case]:
    """The cases whose sizes the artifact declares."""
    return [c for c in reference.index.cases if artifact.accepts(c.batch, c.sequence)]


def usual(artifact: Artifact, reference: Reference) -> list[Case]:
    """Those of them that are not meant to break anything."""
    return [case for case in cases_for(artifact, reference) if not case.hostile]


def plain(artifact: Artifact, reference: Reference) -> list[Case]:
    """Those of them that hold N(0, 1) and no padding."""
    return [case for case in usual(artifact, reference) if case.family == "normal"]


def with_tokens(artifact: Artifact, reference: Reference) -> Case | None:
    """A plain case of more than one token, of a usual size; None if there is none."""
    several = [case for case in plain(artifact, reference) if case.sequence > 1]
    return closest(several) if several else None


def closest(cases: Sequence[Case]) -> Case:
    """The case nearest to a usual size: neither trivial nor long."""
    return min(cases, key=lambda case: (abs(case.batch * case.sequence - _USUAL_TOKENS), case.name))
