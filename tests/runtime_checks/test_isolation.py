"""Child processes: what kills, hangs or fills one is a verdict about its artifact alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import CallCli, run_cli
from folders import CHECK, DYNAMIC, FIXED, QUICK, codes, only, report_of
from isolated_jobs import job
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.processes.child import Child, Limits
from linattn_runtime_checks.processes.pool import judged_in, run_jobs
from linattn_runtime_checks.processes.requests import Answer, Request
from processes import children_of, is_ours

pytestmark = pytest.mark.usefixtures("cold_children")


@pytest.mark.parametrize(
    ("fault", "limits", "code", "says"),
    [
        ("crash", Limits(), Code.RUNTIME_CRASHED, "the process died of SIGABRT at normal-b"),
        ("hang", Limits(seconds=6), Code.RUNTIME_HUNG, "no answer for 6 s at normal-b"),
        ("out-of-memory", Limits(), Code.OUT_OF_MEMORY, "Unable to allocate 8.00 TiB"),
        ("memory-hog", Limits(gibibytes=1.5), Code.OUT_OF_MEMORY, "out of memory at normal-b"),
    ],
)
def test_one_artifact_fails_and_the_rest_goes_on(
    fault: str, limits: Limits, code: Code, says: str, small_folder: Path
) -> None:
    jobs = [job(small_folder), job(small_folder, fault=fault), job(small_folder, FIXED)]
    done: list[str] = []
    first, second, third = run_jobs(jobs, limits, lambda each: done.append(each.artifact.id))
    assert [finding.code for finding in second.findings] == [code]
    (finding,) = second.findings
    assert says in finding.message
    assert finding.message.startswith(f"{DYNAMIC} on ort-cpu: ")
    assert not second.cases
    for result in (first, third):
        assert result.cases
        assert not result.findings
    assert sorted(done) == sorted([DYNAMIC, DYNAMIC, FIXED])


def test_a_child_that_is_killed_is_taken_for_one_without_memory(small_folder: Path) -> None:
    """The kernel's way to end a process that takes too much is SIGKILL."""

    class Killed(Child):
        def _read(self, process: "subprocess.Popen[str]") -> Answer | None:
            process.kill()
            return super()._read(process)

    child = Killed(Limits())
    try:
        result = judged_in(child, job(small_folder))
    finally:
        child.kill()
    (finding,) = result.findings
    assert finding.code is Code.OUT_OF_MEMORY
    assert "SIGKILL" in finding.message


def test_what_a_runtime_prints_is_no_answer(small_folder: Path, tmp_path: Path) -> None:
    """Native code that writes to file descriptor 1 must not break the protocol or stdout."""
    program = (
        "import os, sys\n"
        "from linattn_runtime_checks.judging import child_main as child\n"
        "from linattn_runtime_checks.faults import sessions\n"
        "sessions._Nan.run = lambda self, x: (os.write(1, b'noise\\n'), self._session.run(x))[1]\n"
        "child.main()\n"
    )
    (tmp_path / "noisy.py").write_text(program)
    command = [sys.executable, str(tmp_path / "noisy.py")]
    request = Request(judge=job(small_folder, fault="nan-at-one-position"))
    asked = request.model_dump_json() + "\n"
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "noise" in done.stderr
    assert "noise" not in done.stdout
    assert '"result":{' in done.stdout.splitlines()[-1]


def test_a_fault_of_ours_in_a_child_is_an_internal_error(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(folder_copy, DYNAMIC)
    real = Answer.model_validate_json

    def broken(line: str) -> object:
        answer = real(line)
        return answer.model_copy(update={"broken": "Traceback: ours", "step": None})

    monkeypatch.setattr(Answer, "model_validate_json", broken)
    done = call_cli(CHECK, folder_copy, *QUICK)
    assert done.returncode == 70
    assert "Traceback: ours" in done.stderr


def test_limits_are_told_apart_from_nonsense(folder_copy: Path, call_cli: CallCli) -> None:
    for flag in ("--time-limit", "--memory-limit"):
        done = call_cli(CHECK, folder_copy, *QUICK, flag, "0")
        assert done.returncode == 2
        assert f"{flag} must be above 0, got 0" in done.stderr


def test_a_time_limit_that_is_too_short_is_a_verdict(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--time-limit", "0.01", "--json")
    assert done.returncode == 3
    assert codes(report_of(done), DYNAMIC) == {"runtime_hung"}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads the process table of Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_child_outlives_the_command(number: signal.Signals, folder_copy: Path) -> None:
    command = [sys.executable, "-m", CHECK, str(folder_copy), "--no-latency"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (found := children_of(process.pid)):
        assert time.monotonic() < deadline, "no child was started"
        time.sleep(0.05)
    process.send_signal(number)
    process.wait(timeout=60)
    while any(is_ours(pid) for pid in found):
        assert time.monotonic() < deadline, f"still there: {found}"
        time.sleep(0.05)


def test_a_folder_named_like_a_module_is_not_imported(folder_copy: Path, tmp_path: Path) -> None:
    """Children start in the user's working directory and must not import from it."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "json.py").write_text("raise SystemExit('imported the user\\'s json.py')\n")
    only(folder_copy, DYNAMIC)
    here = os.getcwd()
    os.chdir(place)
    try:
        program = "from linattn_runtime_checks.cli import main; import sys; main()"
        command = [sys.executable, "-P", "-c", program, str(folder_copy), *QUICK]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        os.chdir(here)
    assert done.returncode == 0, done.stderr


def test_in_process_gives_the_same_verdict(folder_copy: Path) -> None:
    only(folder_copy, DYNAMIC, FIXED)
    done = run_cli(CHECK, folder_copy, *QUICK, "--in-process")
    assert done.returncode == 0, done.stderr
    assert "PASS  2 of 2 artifacts pass" in done.stderr
