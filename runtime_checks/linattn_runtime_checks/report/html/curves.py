"""What grows with the length: latency and memory of a method on a runtime, as curves."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from linattn_runtime_checks.cost.exponent import Exponent
from linattn_runtime_checks.results.latency import LatencyResult, LatencyTable
from linattn_runtime_checks.results.report import ArtifactResult

BASELINE = "softmax"
_ONE_LENGTH = re.compile(r"^(prefill-)?n\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement, with the interval that holds its true value where one is known."""

    length: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Measurements of one method; ``joined`` if they are of one artifact."""

    method: str
    label: str
    points: tuple[Point, ...]
    exponent: Exponent | None = None
    joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whose curves: a model and, unless all of its methods are meant, one of them."""

    model: str
    method: str | None = None

    def takes(self, model: str, method: str) -> bool:
        """Whether a curve of ``method`` belongs here; the baseline does beside every method."""
        wanted = self.method is None or method in (self.method, BASELINE)
        return wanted and model == self.model


def latency_runtimes(table: LatencyTable | None, model: str) -> list[str]:
    """The runtimes on which artifacts of ``model`` were timed, in the order of the report."""
    results = table.results if table is not None else []
    return list(dict.fromkeys(result.runtime for result in results if result.model == model))


def latency_curves(table: LatencyTable, subject: Subject, runtime: str) -> list[Curve]:
    """Medians on ``runtime`` at the smallest batch: one curve per method and kind of variant.

    The artifacts of fixed lengths share a kind: each of them gives one point of it. They are
    shown for the method itself only; beside it, and where all methods are compared, they would
    hide the curves. So would a prefill beside the same without a state; a step has no length.
    """
    found: dict[tuple[str, str], list[LatencyResult]] = {}
    results = [
        r for r in table.results if r.runtime == runtime and subject.takes(r.model, r.method)
    ]
    batch = min((r.batch for r in results), default=0)
    for result in results:
        if result.batch == batch and not result.variant.startswith("step"):
            found.setdefault((result.method, kind_of(result.variant)), []).append(result)
    dynamic = {method for method, kind in found if kind.startswith("dynamic")}
    curves = []
    for (method, kind), members in sorted(found.items(), key=lambda item: item[0][1]):
        fixed = "fixed" in kind
        if fixed and method in dynamic and method != subject.method:
            continue
        if kind.startswith("prefill") and method in dynamic:
            continue
        exponent = table.exponents.get(f"{runtime}/{subject.model}/{method}")
        curves.append(
            Curve(
                method=method,
                label=method if kind == "dynamic" else f"{method} {kind}",
                points=_points(members),
                exponent=exponent if kind == "dynamic" else None,
                joined=not fixed,
            )
        )
    return _own_first(curves, subject)


def memory_curves(artifacts: Iterable[ArtifactResult], subject: Subject,
                  runtime: str) -> list[Curve]:  # fmt: skip
    """Peak memory beyond the loaded session on ``runtime``, one curve per dynamic artifact."""
    curves = []
    for artifact in artifacts:
        if not subject.takes(artifact.model, artifact.method):
            continue
        if not artifact.variant.startswith("dynamic"):
            continue
        for result in artifact.runtimes:
            # Nothing above the session says nothing about size, and has no logarithm.
            peaks = {n: peak for n, peak in result.peak_bytes.items() if peak > 0}
            if result.runtime == runtime and peaks:
                points = tuple(Point(length=n, value=peaks[n]) for n in sorted(peaks))
                kind = kind_of(artifact.variant)
                label = artifact.method if kind == "dynamic" else f"{artifact.method} {kind}"
                curves.append(Curve(method=artifact.method, label=label, points=points,
                                    exponent=result.memory_exponent))  # fmt: skip
    return _own_first(curves, subject)


def memory_runtimes(artifacts: Iterable[ArtifactResult], model: str) -> list[str]:
    """The runtimes on which the memory of ``model`` was measured."""
    return list(
        dict.fromkeys(
            result.runtime
            for artifact in artifacts
            if artifact.model == model
            for result in artifact.runtimes
            if any(peak > 0 for peak in result.peak_bytes.values())
        )
    )


def kind_of(variant: str) -> str:
    """Variants of one length by what they share: ``n512-fp16`` is ``fixed-fp16``."""
    return _ONE_LENGTH.sub(r"\1fixed", variant)


def _points(members: Iterable[LatencyResult]) -> tuple[Point, ...]:
    """By length; a time of zero has no logarithm, and there is no place for one without end."""
    return tuple(
        Point(
            length=result.sequence,
            value=result.p50_ms,
            low=result.low_ms,
            high=result.high_ms,
        )
        for result in sorted(members, key=lambda result: result.sequence)
        if 0 < result.p50_ms < math.inf
    )


def _own_first(curves: list[Curve], subject: Subject) -> list[Curve]:
    """The method itself, then the baseline; a baseline alone is a curve of nothing."""
    if subject.method is not None and all(c.method != subject.method for c in curves):
        return []
    curves = [curve for curve in curves if curve.points]
    return sorted(curves, key=lambda curve: curve.method == BASELINE != subject.method)
