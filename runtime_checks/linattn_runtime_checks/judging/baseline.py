"""``--baseline``: size and latency against an earlier report, with bands that noise stays within.

Sizes of one version of everything are equal to the byte; the band is for what a new exporter
writes beside the weights. Latency is compared with the speed of the machine divided out (see
``latency.machine``), and counts as worse only if the whole interval of the ratio lies beyond the
band, in the run and in a second one of the suspects alone.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from linattn_runtime_checks.checks.baseline import BASELINE
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.results.latency import LatencyResult, LatencyTable
from linattn_runtime_checks.results.report import Against, Change, Finding, Report

SIZE_BAND = 1.01
LATENCY_BAND = 1.25
_NAMED = 4
_SAME_MACHINE = ("processor", "cores", "system")
Again = Callable[[set[str]], LatencyTable]


def read_baseline(path: Path) -> Report:
    """The report at ``path``.

    Raises:
        UsageError: there is none, or it is not a report of this version's schema.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"`baseline` {path} cannot be read ({error}); give the report.json of a build or what "
            "linattn-check --json printed"
        ) from error
    try:
        return Report.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise UsageError(
            f"`baseline` {path} is not a report of this version: {where}: {first['msg']}; measure "
            "the baseline again with this version"
        ) from error


def compare(report: Report, before: Report, again: Again) -> Against:
    """Compare ``report`` with the one ``before``.

    Args:
        report: of this run.
        before: the baseline.
        again: times what has these keys once more, alone.
    """
    found = Against(changes=[*_sizes(report, before)])
    found.findings += _gone(report, before)
    if report.latency is not None:
        _latencies(found, report, before, again)
    for change in found.changes:
        if change.worse:
            code = Code.SIZE_GREW if change.what == "size" else Code.LATENCY_GREW
            found.findings.append(BASELINE.finding(code, change.text()))
    return found


def _sizes(report: Report, before: Report) -> Iterator[Change]:
    old = {artifact.id: artifact.bytes for artifact in before.artifacts}
    for artifact in report.artifacts:
        if artifact.id in old:
            ratio = artifact.bytes / max(old[artifact.id], 1)
            yield Change(
                what="size",
                subject=artifact.id,
                before=old[artifact.id],
                now=artifact.bytes,
                ratio=ratio,
                low=ratio,
                worse=ratio > SIZE_BAND,
            )


def _gone(report: Report, before: Report) -> list[Finding]:
    here = {artifact.id for artifact in report.artifacts}
    gone = [artifact.id for artifact in before.artifacts if artifact.id not in here]
    if not gone:
        return []
    named = ", ".join(gone[:_NAMED])
    if len(gone) > _NAMED:
        named = f"{len(gone)} artifacts ({named}, ..)"
    verb = "is" if len(gone) == 1 else "are"
    message = f"{named} {verb} in the baseline, but not in the folder"
    return [BASELINE.finding(Code.ARTIFACT_GONE, message)]


def _latencies(found: Against, report: Report, before: Report, again: Again) -> None:
    assert report.latency is not None
    reason = _incomparable(report, before)
    if reason is not None or before.latency is None:
        message = f"latency is not compared with the baseline: {reason}"
        found.findings.append(BASELINE.finding(Code.BASELINE_INCOMPARABLE, message))
        return
    changes = _changes(report.latency, before.latency)
    suspects = {key for key, change in changes.items() if change.worse}
    if suspects:
        for key, second in _changes(again(suspects), before.latency).items():
            if second.low < changes[key].low:  # the second run is as good as the first
                changes[key] = second
    found.changes += changes.values()
    # A build times live modules too, which no check has.
    timed = {result.key for result in before.latency.results if result.runtime != "eager"}
    found.uncompared = len(timed - changes.keys())


def _changes(now: LatencyTable, before: LatencyTable) -> dict[str, Change]:
    old = {result.key: result for result in before.results}
    return {
        result.key: _change(old[result.key], result, _speed(now, before, result.sequence))
        for result in now.results
        if result.key in old
    }


def _change(before: LatencyResult, now: LatencyResult, speed: float) -> Change:
    low = now.low_ms / (before.high_ms * speed)
    return Change(
        what="latency",
        subject=now.key,
        before=before.p50_ms,
        now=now.p50_ms,
        ratio=now.p50_ms / (before.p50_ms * speed),
        low=low,
        worse=low > LATENCY_BAND,
    )


def _speed(now: LatencyTable, before: LatencyTable, sequence: int) -> float:
    """How many times longer the machine takes now than then for the same product."""
    return now.machine_ms[sequence] / before.machine_ms[sequence]


def _incomparable(report: Report, before: Report) -> str | None:
    if before.latency is None or not before.latency.results:
        return "it holds none; measure the baseline without --no-latency"
    for name in _SAME_MACHINE:
        mine, other = report.environment.get(name), before.environment.get(name)
        if mine != other:
            return f"it was measured with {name} {other}, this run with {mine}; measure it here"
    assert report.latency is not None
    if report.latency.threads != before.latency.threads:
        return f"it ran {before.latency.threads} threads, this run {report.latency.threads}"
    lengths = {result.sequence for result in before.latency.results}
    if unknown := lengths - before.latency.machine_ms.keys():
        return f"it does not say the machine's speed at {min(unknown)} tokens; measure it again"
    if not _changes(report.latency, before.latency):
        return "no artifact, runtime, length and batch was timed in both"
    return None
