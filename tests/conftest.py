"""What several test files share: the commands, and one small folder that a build wrote."""

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.errors import ExitCode


def pytest_configure(config: pytest.Config) -> None:
    """One core for each xdist worker: thread pools that share a core wait for each other."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


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


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build of two methods wrote, all formats; read it, do not change it."""
    folder = tmp_path_factory.mktemp("small") / "artifacts"
    request = BuildRequest(
        output=folder,
        methods=("elu", "linformer"),
        lengths=(16,),
        dynamic="1:64",
        batch="1:4",
        d_model=32,
        heads=2,
        options={"linformer": {"rank": 8, "max_length": 64}},
        latency=False,
        quiet=True,
    )
    assert build(request).exit_code is ExitCode.PASS
    return folder


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
def masked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See :func:`golden_runs.build_masked`; read it, do not change it."""
    from golden_runs import build_masked

    return build_masked(tmp_path_factory.mktemp("masked") / "artifacts")


@pytest.fixture(scope="session")
def langid_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See :func:`golden_runs.build_langid`; for slow tests, which must not change it."""
    from golden_runs import build_langid

    return build_langid(tmp_path_factory.mktemp("langid") / "artifacts")


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
