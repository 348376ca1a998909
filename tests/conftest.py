"""What several test files share: the commands, and one small folder that a build wrote."""

import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import warm_children
from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.processes import pool
from linattn_runtime_checks.processes.child import Child


def pytest_configure(config: pytest.Config) -> None:
    """One core for each xdist worker: thread pools that share a core wait for each other."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


@pytest.fixture(scope="session", autouse=True)
def _warm_children() -> Iterator[None]:
    """See :mod:`warm_children`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Child", warm_children.WarmChild)
        yield
    warm_children.end_all()


@pytest.fixture
def cold_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that start and end with each build, as users have them."""
    monkeypatch.setattr(pool, "Child", Child)


Outcome = subprocess.CompletedProcess[str]
CallCli = Callable[..., Outcome]


def run_cli(module: str, *args: object) -> Outcome:
    """``python -m MODULE ARGS`` as a user runs it."""
    command = [sys.executable, "-m", module, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def call_cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CallCli:
    """As :func:`run_cli`, in this process: fast, and parts of the product can be replaced."""

    def call(module: str, *args: object) -> Outcome:
        main = importlib.import_module(f"{module}.cli").main
        command = [module, *map(str, args)]
        monkeypatch.setattr(sys, "argv", command)
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return Outcome(command, left.value.code, out, err)

    return call


BuildOnce = Callable[..., Path]


@pytest.fixture(scope="session")
def build_once(tmp_path_factory: pytest.TempPathFactory) -> BuildOnce:
    """Builds what a request asks for once in a run, whichever worker needs it first.

    The folder that it returns passed, and is for reading: other tests have the same.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def once(request: BuildRequest, **under: object) -> Path:
        """``under``: what else the folder depends on, such as constants that a test replaced."""
        key = hashlib.sha256(repr((request, sorted(under.items()))).encode()).hexdigest()[:16]
        place = base / f"built-{key}"
        with open(place.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (passed := place.with_suffix(".passed")).exists():
                report = build(replace(request, output=place, latency=False, quiet=True))
                assert report.exit_code is ExitCode.PASS, report.findings
                passed.touch()
        return place

    return once


@pytest.fixture(scope="session")
def small_folder(build_once: BuildOnce) -> Path:
    """What a build of two methods wrote, all formats; read it, do not change it."""
    request = BuildRequest(
        methods=("elu", "linformer"),
        lengths=(16,),
        dynamic="1:64",
        batch="1:4",
        d_model=32,
        heads=2,
        options={"linformer": {"rank": 8, "max_length": 64}},
    )
    return build_once(request)


@pytest.fixture
def folder_copy(small_folder: Path, tmp_path: Path) -> Path:
    """A copy of ``small_folder`` that a test may damage."""
    return Path(shutil.copytree(small_folder, tmp_path / "artifacts"))


def snapshot(root: Path) -> dict[str, str]:
    """Every path below ``root`` and the hash of its bytes, to see that nothing changed."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture(scope="session")
def masked_folder(build_once: BuildOnce) -> Path:
    """See :func:`golden_runs.masked`; read it, do not change it."""
    from golden_runs import masked

    return build_once(masked())


@pytest.fixture(scope="session")
def langid_folder(build_once: BuildOnce) -> Path:
    """See :data:`golden_runs.LANGID_REQUEST`; for slow tests, which must not change it."""
    from golden_runs import LANGID_REQUEST

    return build_once(LANGID_REQUEST)


@pytest.fixture
def masked_copy(masked_folder: Path, tmp_path: Path) -> Path:
    """A copy of ``masked_folder`` that a test may damage."""
    return Path(shutil.copytree(masked_folder, tmp_path / "masked"))


@pytest.fixture
def here(small_folder: Path, tmp_path: Path) -> Path:
    """See :func:`build_calls.prepare`."""
    from build_calls import prepare

    return prepare(small_folder, tmp_path)


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    """``report.html`` of a report that passes, one that fails and one in part."""
    from page_elements import states

    return states()
