"""Artifacts are judged while the next are written; nothing of that outlives a build that fails."""

import os
import threading
import time
from pathlib import Path

import pytest
import torch

from folders import DYNAMIC
from isolated_jobs import job
from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.errors import ExitCode, ExportError
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.judging.early import HowToJudge, Judging
from linattn_runtime_checks.processes import pool
from linattn_runtime_checks.processes.child import Child, Limits
from linattn_runtime_checks.processes.pool import Pool
from linattn_runtime_checks.processes.requests import Job
from linattn_runtime_checks.results.report import RuntimeResult
from linattn_runtime_checks.runtimes import RUNTIMES
from processes import children_of

SOON_S = 60.0


def test_a_job_is_judged_before_the_next_is_submitted(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = threading.Semaphore(0)

    def fake(child: Child, each: Job) -> RuntimeResult:
        judged.release()
        return RuntimeResult(runtime=each.artifact.id)

    monkeypatch.setattr(pool, "judged_in", fake)
    told: list[str] = []
    with Pool(Limits(), 2) as started:
        for _ in range(3):
            started.submit(job(small_folder))
            assert judged.acquire(timeout=SOON_S)
        results = started.results(lambda each: told.append(each.artifact.id))
    assert [result.runtime for result in results] == told == [DYNAMIC] * 3


def test_what_still_waits_when_the_block_is_left_is_not_judged(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = threading.Semaphore(0)

    def until_killed(child: Child, each: Job) -> RuntimeResult:
        seen.release()
        while not child._gone:
            time.sleep(0.01)
        return RuntimeResult(runtime=each.runtime)

    monkeypatch.setattr(pool, "judged_in", until_killed)
    with Pool(Limits(), 1) as started:
        for _ in range(5):
            started.submit(job(small_folder))
        assert seen.acquire(timeout=SOON_S)
    assert not seen.acquire(blocking=False)


@pytest.mark.usefixtures("cold_children")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads the process table of Linux")
def test_a_build_that_fails_half_way_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(children_of(os.getpid()))
    seen: list[int] = []

    def fails(*_: object, **__: object) -> None:
        seen.extend(set(children_of(os.getpid())) - before)
        raise RuntimeError("no script")

    monkeypatch.setattr(torch.jit, "script", fails)
    request = BuildRequest(
        output=tmp_path / "out",
        methods=("relu",),
        formats=("torchscript", "pt2"),
        lengths=(5,),
        dynamic="",
        d_model=8,
        heads=2,
        quiet=True,
    )
    with pytest.raises(ExportError, match="no script"):
        build(request)
    assert seen, "a child was getting ready"
    assert set(children_of(os.getpid())) <= before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("formats", "prepared"),
    [((), []), (("onnx",), ["ort-cpu"]), (("pt2", "onnx"), ["ort-cpu", "pt2"])],
)
def test_children_import_what_the_formats_need_and_no_more(
    formats: tuple[str, ...], prepared: list[str], small_folder: Path
) -> None:
    runtimes = [RUNTIMES[name] for name in ("ort-cpu", "torchscript", "pt2")]
    judging = Judging(HowToJudge(folder=small_folder, runtimes=runtimes), 3, formats)
    assert judging._pool is not None
    assert judging._pool._prepare == prepared


@pytest.mark.parametrize("isolate", [True, False])
def test_results_come_in_the_order_of_the_manifest(isolate: bool, small_folder: Path) -> None:
    artifacts = [a for a in read(small_folder).artifacts if a.format == "onnx"]
    how = HowToJudge(folder=small_folder, runtimes=[RUNTIMES["ort-cpu"]], isolate=isolate)
    with Judging(how, len(artifacts)) as judging:
        for artifact in artifacts:
            judging.add(artifact)
        assert len(judging) == len(artifacts) > 1
        found = list(judging.results(lambda each: None))
    assert [each.artifact.id for each, _ in found] == [artifact.id for artifact in artifacts]
    for _, result in found:
        assert result.exit_code is ExitCode.PASS
        assert result.cases
