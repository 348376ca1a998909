"""A format, a runtime and a check that only their tables know go through everything."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from linattn_export.build.pipeline import build
from linattn_export.formats import FORMATS
from linattn_export.listing import tables
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.manifest import Manifest, read
from linattn_runtime_checks.faults.sessions import SESSION_FAULTS
from linattn_runtime_checks.judging.artifact import judge
from linattn_runtime_checks.judging.folder import CheckRequest, check_folder
from linattn_runtime_checks.judging.selftest import self_test
from linattn_runtime_checks.processes.requests import Job
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.report.junit import render
from linattn_runtime_checks.report.markdown import render as markdown
from linattn_runtime_checks.results.report import Report, RuntimeResult
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import RunFailed

ARTIFACT = "layer/elu/toy/dynamic"


def _odd_sizes(context: Context) -> list[Problem]:
    odd = [case.case for case in context.result.cases if case.sequence == 37 and context.planted]
    return [Problem(code=Code.NONFINITE_OUTPUT, message=f"{odd[0]} is odd")] if odd else []


TOY_FORMAT = dataclasses.replace(
    FORMATS["onnx"], name="toy", title="a toy", file_name="model.toy", test_data=False, stamp=None
)
TOY_RUNTIME = dataclasses.replace(
    RUNTIMES["ort-cpu"],
    name="toy-runs",
    title="runs toys",
    formats=("toy",),
    placed=None,
    certify=None,
    onnx_graphs=False,
    judges_kernels=False,
)
TOY_CHECK = Check(
    name="toy-check",
    title="toys are whole",
    codes=(),
    shares=(Code.NONFINITE_OUTPUT,),
    run=_odd_sizes,
    faults=("swapped-outputs",),
)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries in the tables, and nothing else."""
    monkeypatch.setitem(FORMATS, "toy", TOY_FORMAT)
    monkeypatch.setitem(RUNTIMES, "toy-runs", TOY_RUNTIME)
    monkeypatch.setitem(CHECKS, "toy-check", TOY_CHECK)


@pytest.fixture
def folder(tmp_path: Path, toys: None) -> Path:
    request = BuildRequest(
        output=tmp_path / "out",
        methods=("elu",),
        formats=("toy",),
        lengths=(),
        dynamic="1:48",
        batch="1:4",
        d_model=16,
        heads=2,
        check=False,  # the children of a build would import the tables anew
        quiet=True,
    )
    build(request)
    return tmp_path / "out"


def checked(folder: Path, document: Manifest | None = None) -> tuple[Manifest, Report]:
    document = document or read(folder)
    request = CheckRequest(
        runtimes=("toy-runs",), latency=True, quiet=True, isolate=False, repro=folder / "repro"
    )
    return document, check_folder(folder, document, request)


def test_a_right_toy_passes_and_every_report_shows_it(folder: Path) -> None:
    document, report = checked(folder)
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    (result,) = report.artifacts[0].runtimes
    assert result.runtime == "toy-runs"
    assert "toy-check" in {check.name for check in result.checks}
    for text in (render(report), render_html(report, document), markdown(report)):
        assert ARTIFACT in text or "toy" in text
    assert 'name="toy-check"' in render(report)
    assert {row[0] for row in tables()["formats"][1]} >= {"toy"}
    assert {row[0] for row in tables()["checks"][1]} >= {"toy-check"}


def test_a_wrong_toy_is_rejected_blamed_and_shown_by_a_program(folder: Path) -> None:
    document = read(folder)
    wrong = folder / document.artifacts[0].path
    from onnx import load, numpy_helper, save

    model = load(wrong)
    for item in model.graph.initializer:
        value = numpy_helper.to_array(item)
        if value.ndim == 2:
            item.CopyFrom(numpy_helper.from_array(value * value.dtype.type(1.01), item.name))
    save(model, wrong, format="protobuf")
    from linattn_runtime_checks.contract.integrity import stored

    fresh = stored(folder, document.artifacts[0].path)
    document.artifacts[0].sha256, document.artifacts[0].bytes = fresh.sha256, fresh.bytes
    _, report = checked(folder, document)
    assert report.exit_code is ExitCode.PARITY
    (result,) = report.artifacts[0].runtimes
    assert {finding.check for finding in result.findings} >= {"parity"}
    assert result.blame
    assert result.repro
    shown = subprocess.run(
        [sys.executable, str(folder / "repro" / result.repro / "repro.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 1, shown.stderr


def test_the_self_test_plants_the_faults_that_the_toy_check_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from linattn_runtime_checks.judging import selftest

    def here(jobs: list[Job], limits: object, done: object) -> list[RuntimeResult]:
        def judged(job: Job) -> RuntimeResult:
            try:
                return judge(job, lambda step: None)
            except MemoryError as error:
                raise RunFailed(str(error)) from error

        return [judged(job) for job in jobs]

    monkeypatch.setattr(selftest, "run_jobs", here)
    kept = {name: SESSION_FAULTS[name] for name in TOY_CHECK.faults}
    monkeypatch.setattr(selftest, "SESSION_FAULTS", kept)
    found = self_test(folder, read(folder), ("toy-runs",), quiet=True)
    (planted,) = found.planted
    assert planted.rejected
    assert "toy-check" in planted.checks
