"""Timing happens in a child: what a runtime does to it there is a verdict about one artifact."""

import subprocess
from pathlib import Path

import pytest

from folders import DYNAMIC, FIXED, only
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.manifest import Manifest, read
from linattn_runtime_checks.judging.folder import CheckRequest, check_folder
from linattn_runtime_checks.latency import run
from linattn_runtime_checks.latency.run import time_folder
from linattn_runtime_checks.processes.child import Child, Limits
from linattn_runtime_checks.processes.requests import Answer, Request
from linattn_runtime_checks.results.latency import LatencyTable
from linattn_runtime_checks.results.report import (
    Report,
)

Checked = tuple[Path, Manifest, Report]


@pytest.fixture
def checked(folder_copy: Path) -> Checked:
    only(folder_copy, DYNAMIC, FIXED)
    manifest = read(folder_copy)
    request = CheckRequest(runtimes=("ort-cpu",), latency=False, quiet=True, isolate=False)
    report = check_folder(folder_copy, manifest, request)
    assert report.exit_code is ExitCode.PASS
    return folder_copy, manifest, report


def timed(checked: Checked, *, limits: Limits | None = None, isolate: bool = True) -> LatencyTable:
    folder, manifest, report = checked
    limits = limits or Limits()
    return time_folder(
        folder, manifest, report, {}, threads=1, limits=limits, isolate=isolate, quiet=True
    )


def findings(report: Report) -> dict[str, list[tuple[Code, str]]]:
    """Of each artifact, without notes."""
    return {
        artifact.id: [
            (finding.code, finding.message)
            for outcome in artifact.runtimes
            for finding in outcome.findings
            if finding.exit_code is not ExitCode.PASS
        ]
        for artifact in report.artifacts
    }


@pytest.mark.parametrize("isolate", [True, False])
def test_everything_is_timed_and_opening_is_noted(checked: Checked, isolate: bool) -> None:
    table = timed(checked, isolate=isolate)
    assert {(r.variant, r.sequence) for r in table.results} >= {("dynamic", 64), ("n16", 16)}
    assert all(
        r.runs >= 4 and 0 < r.min_ms <= r.low_ms <= r.p50_ms <= r.high_ms for r in table.results
    )
    assert all(r.session_ms for a in checked[2].artifacts for r in a.runtimes)


def test_a_crash_while_timed_is_a_verdict_about_that_artifact(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fragile(Child):
        doomed = False

        def ask(self, request: Request) -> Answer:
            turn = request.turn
            self.doomed = turn is not None and turn.artifact.id == FIXED and turn.counted > 1
            return super().ask(request)

        def _read(self, process: "subprocess.Popen[str]") -> Answer | None:
            if not self.doomed:
                return super()._read(process)
            process.terminate()
            process.wait()  # its answer may be on the way already, and must not be taken for one
            return None

    monkeypatch.setattr(run, "Child", Fragile)
    table = timed(checked)
    found = findings(checked[2])
    assert found[DYNAMIC] == []
    ((code, message),) = found[FIXED]
    assert code is Code.RUNTIME_CRASHED
    assert message.startswith(f"{FIXED} on ort-cpu: the process died of SIGTERM at ")
    assert {result.variant for result in table.results} == {"dynamic"}


def test_a_hang_while_timed_is_a_verdict(checked: Checked) -> None:
    table = timed(checked, limits=Limits(seconds=1e-3))
    assert not table.results
    for found in findings(checked[2]).values():
        ((code, message),) = found
        assert code is Code.RUNTIME_HUNG
        assert "no answer for 0.001 s" in message


def test_a_file_that_vanishes_is_a_verdict(checked: Checked) -> None:
    folder, manifest, report = checked
    (gone,) = [artifact.path for artifact in manifest.artifacts if artifact.id == FIXED]
    (folder / gone).unlink()
    table = timed(checked)
    ((code, _),) = findings(report)[FIXED]
    assert code is Code.LOAD_FAILED
    assert {result.variant for result in table.results} == {"dynamic"}
