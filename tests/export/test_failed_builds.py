"""A build that ends midway, by a fault or by a signal, leaves the old folder."""

import dataclasses
import errno
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_calls import EXPORT, SMALL, TINY, words
from conftest import CallCli, snapshot
from linattn_export.build import pipeline
from linattn_export.formats import FORMATS
from linattn_runtime_checks.contract import manifest
from linattn_runtime_checks.contract.errors import ExportError

pytestmark = pytest.mark.slow

Fault = Callable[..., Any]


Plant = Callable[[pytest.MonkeyPatch, Fault], None]


def in_the_reference(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    patch.setattr(pipeline, "write_golden", fault)


def in_the_second_format(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    patch.setitem(FORMATS, "pt2", dataclasses.replace(FORMATS["pt2"], write=fault))


def in_the_checks(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    patch.setattr(pipeline, "check_folder", fault)


def in_the_manifest(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    patch.setattr(manifest, "write", fault)


def in_the_swap(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if target.name == "previous" and self.name.startswith(".previous."):
            fault()
        return rename(self, target)

    patch.setattr(Path, "rename", failing)


FULL = OSError(errno.ENOSPC, "No space left on device")


UNCHANGED = "what was there is unchanged"


@pytest.mark.parametrize(
    ("plant", "error", "code", "says"),
    [
        pytest.param(in_the_reference, ExportError("planted"), 3, ("planted",), id="export-error"),
        pytest.param(in_the_second_format, ExportError("planted"), 3, ("planted",), id="format"),
        pytest.param(in_the_reference, FULL, 3, (FULL.strerror, UNCHANGED), id="disk-full-early"),
        pytest.param(in_the_second_format, FULL, 3, (FULL.strerror, UNCHANGED), id="disk-full"),
        pytest.param(in_the_manifest, FULL, 3, (FULL.strerror, UNCHANGED), id="disk-full-at-end"),
        pytest.param(in_the_swap, FULL, 3, (FULL.strerror, UNCHANGED), id="rename-fails"),
        pytest.param(in_the_second_format, KeyboardInterrupt(), 130, ("interrupted",), id="ctrl-c"),
        pytest.param(
            in_the_checks, KeyboardInterrupt(), 130, ("interrupted",), id="ctrl-c-while-checking"
        ),
        pytest.param(in_the_swap, KeyboardInterrupt(), 130, ("interrupted",), id="ctrl-c-in-swap"),
        pytest.param(
            in_the_second_format,
            RuntimeError("planted"),
            70,
            ("internal error (RuntimeError)", "planted", "report it", "issue tracker"),
            id="unexpected",
        ),
    ],
)
def test_a_build_that_fails_midway_leaves_the_old_folder(
    plant: Plant,
    error: BaseException,
    code: int,
    says: tuple[str, ...],
    here: Path,
    call_cli: CallCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fault(*args: object, **kwargs: object) -> object:
        raise error

    plant(monkeypatch, fault)
    before = snapshot(here)
    done = call_cli(EXPORT, *words(TINY, here))
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert all(part in done.stderr for part in says), done.stderr
    assert ("Traceback" in done.stderr) == (code == 70)
    assert snapshot(here) == before


def test_the_same_build_without_a_fault_replaces_the_old_folder(
    here: Path, call_cli: CallCli
) -> None:
    before = snapshot(here / "previous")
    assert call_cli(EXPORT, *words(TINY, here)).returncode == 0
    after = snapshot(here / "previous")
    assert "layer/elu/pt2/dynamic/model.pt2" in after
    assert "layer/linformer" not in after
    assert before != after
    assert not list(here.glob(".*"))


@pytest.mark.parametrize(
    ("number", "codes"),
    [
        pytest.param(signal.SIGKILL, {-signal.SIGKILL}, id="kill"),
        # Caught while Python ran an exec(), it ends the process at exit; a shell says 130 to both.
        pytest.param(signal.SIGINT, {130, -signal.SIGINT}, id="ctrl-c"),
    ],
)
def test_a_signal_midway_leaves_the_old_folder(
    number: signal.Signals, codes: set[int], here: Path
) -> None:
    before = snapshot(here / "previous")
    command = [sys.executable, "-m", EXPORT, *words(SMALL, here)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list(here.glob(".previous.*/layer")):
            assert process.poll() is None, "the build ended before it was staged"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode in codes, err
    assert out == b""
    assert snapshot(here / "previous") == before
    if number == signal.SIGINT:
        assert b"interrupted" in err
        assert not list(here.glob(".*"))
