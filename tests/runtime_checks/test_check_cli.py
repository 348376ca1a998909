"""``linattn-check`` on whole and wrong folders, and without what it needs."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime
import pytest

from conftest import CallCli, Outcome, run_cli, snapshot
from folders import (
    CHECK,
    DYNAMIC,
    FIXED,
    ONNX,
    QUICK,
    SCRIPT,
    alter,
    change_weight,
    codes,
    entry,
    flip,
    judged,
    only,
    report_of,
)
from linattn_runtime_checks.contract.errors import EnvironmentProblem
from linattn_runtime_checks.runtimes import onnx_runtime

# A whole folder


def test_a_whole_folder_passes_on_all_runtimes(folder_copy: Path) -> None:
    before = snapshot(folder_copy)
    done = run_cli(CHECK, folder_copy, "--no-latency")
    assert done.returncode == 0, done.stderr
    assert "PASS  12 of 12 artifacts pass" in done.stderr
    assert f"check    linattn-check {folder_copy}" in done.stderr
    assert done.stdout == ""
    assert snapshot(folder_copy) == before


def test_latency_is_reported(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, FIXED)
    done = call_cli(CHECK, folder_copy, "--runtime", "ort-cpu", "--json")
    assert done.returncode == 0
    (result,) = report_of(done)["latency"]["results"]
    assert (result["runtime"], result["sequence"]) == ("ort-cpu", 16)
    assert 0 < result["min_ms"] <= result["p50_ms"] <= result["p90_ms"]
    assert "tokens" in done.stderr


def test_json_is_all_that_stdout_holds(folder_copy: Path, call_cli: CallCli) -> None:
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    report = report_of(done)
    assert (done.returncode, report["verdict"], report["exit_code"]) == (0, "PASS", 0)
    assert len(judged(report)) == 4
    assert "PASS  4 of 12 artifacts pass, 8 were not judged" in done.stderr


def test_quiet_prints_the_verdict_only(folder_copy: Path, call_cli: CallCli) -> None:
    done = call_cli(CHECK, folder_copy, *QUICK, "-q")
    assert done.stdout == ""
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["PASS", "folder", "check"]


def test_summary_is_markdown(folder_copy: Path, call_cli: CallCli, tmp_path: Path) -> None:
    flip(folder_copy / ONNX)
    done = call_cli(CHECK, folder_copy, *QUICK, "--summary", tmp_path / "summary.md")
    text = (tmp_path / "summary.md").read_text()
    assert (done.returncode, done.stdout) == (3, "")
    assert text.startswith("## linattn: EXPORT\n")
    assert "`file_damaged`" in text
    assert f"{ONNX} was altered" in text
    assert "layer/linformer" in text


def test_summary_that_cannot_be_written(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, FIXED)
    target = folder_copy / "nowhere" / "summary.md"
    done = call_cli(CHECK, folder_copy, *QUICK, "--summary", target)
    assert done.returncode == 2
    assert f"--summary {target} cannot be written: No such file" in done.stderr


# Without torch


_WATCH = """
import sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in {watched}:
            with open({log!r}, "a") as stream:
                stream.write(name + chr(10))

sys.meta_path.insert(0, Watch())
sys.modules.update(dict.fromkeys({blocked}))
"""


def check_without(blocked: list[str], watched: list[str], *args: object) -> Outcome:
    """Run the command with ``blocked`` unimportable; fail if one of ``watched`` was imported.

    In the child processes too: Python reads ``sitecustomize`` at every start.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "imported"
        text = _WATCH.format(watched=watched, blocked=blocked, log=str(log))
        (Path(folder) / "sitecustomize.py").write_text(text)
        command = [sys.executable, "-m", CHECK, *map(str, args)]
        env = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert not log.exists(), log.read_text()
    return done


def test_without_torch_the_rest_is_judged(folder_copy: Path) -> None:
    done = check_without(["torch"], ["torch"], folder_copy, "--no-latency")
    assert done.returncode == 0, done.stderr
    assert "PASS  4 of 12 artifacts pass, 8 were not judged" in done.stderr
    for runtime in ("torchscript", "pt2"):
        assert f"not used: {runtime}: torch is not installed; run: pip install" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if SCRIPT in line]
    assert "NOT JUDGED" in line


def test_without_anything_but_onnxruntime(folder_copy: Path) -> None:
    others = ["torch", "linattn", "linattn_models", "linattn_export", "onnx", "onnxscript"]
    done = check_without(others, others, folder_copy, *QUICK)
    assert done.returncode == 0, done.stderr


def test_torch_is_not_imported_for_ort(folder_copy: Path) -> None:
    done = check_without([], ["torch"], folder_copy, "--runtime", "ort-cpu")
    assert done.returncode == 0, done.stderr


def test_torch_that_was_asked_for_and_is_missing(folder_copy: Path) -> None:
    done = check_without(["torch"], ["torch"], folder_copy, "--runtime", "pt2")
    assert done.returncode == 4
    assert "runtime pt2 is not available: torch is not installed" in done.stderr
    assert "pip install 'linattn[export]'" in done.stderr


def test_one_weight_off_by_a_thousandth(folder_copy: Path, call_cli: CallCli) -> None:
    alter(folder_copy, DYNAMIC, change_weight(lambda largest: largest / 1000))
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    report = report_of(done)
    assert (done.returncode, report["verdict"]) == (1, "PARITY")
    assert codes(report, DYNAMIC) == {"parity_exceeded"}
    cases = entry(report, DYNAMIC)["runtimes"][0]["cases"]
    wrong = [case for case in cases if case["code"] == "parity_exceeded"]
    lengths = sorted({case["sequence"] for case in wrong})
    worst = max(wrong, key=lambda case: float(case["multiple"]))
    assert lengths[-1] == 64
    assert f"lengths {', '.join(map(str, lengths))}; worst {worst['case']}" in done.stderr
    assert f"{worst['multiple']:.3g}x the rounding" in done.stderr
    assert f"worst element {worst['worst_index']}: expected" in done.stderr


def test_one_weight_is_nan(folder_copy: Path, call_cli: CallCli) -> None:
    alter(folder_copy, DYNAMIC, change_weight(lambda largest: float("nan")))
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 1
    assert codes(report_of(done), DYNAMIC) == {"nonfinite_mismatch", "nonfinite_output"}
    assert "NaN in " in done.stderr


# The runtime is not what was asked for


def test_two_onnx_runtimes_over_each_other(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_runtime, "_installed", lambda name: True)
    done = call_cli(CHECK, folder_copy, "--in-process", "--json")
    assert (done.returncode, done.stdout) == (4, "")
    assert "onnxruntime and onnxruntime-gpu are both installed" in done.stderr
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in done.stderr


def test_a_provider_that_falls_back_is_an_error() -> None:
    with pytest.raises(EnvironmentProblem, match="asked for, but the session runs on CPU"):
        onnx_runtime.require_provider(onnx_runtime.CUDA, [onnx_runtime.CPU])
    with pytest.raises(EnvironmentProblem, match="runs on nothing"):
        onnx_runtime.require_provider(onnx_runtime.CPU, [])
    onnx_runtime.require_provider(onnx_runtime.CUDA, [onnx_runtime.CUDA, onnx_runtime.CPU])


def test_a_session_on_another_provider_is_not_judged(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        onnxruntime.InferenceSession, "get_providers", lambda self: ["AzureExecutionProvider"]
    )
    only(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, "--in-process", *QUICK, "--json")
    report = report_of(done)
    assert (done.returncode, report["verdict"]) == (4, "ENVIRONMENT")
    assert codes(report, DYNAMIC) == {"provider_fallback"}
    assert judged(report) == set()


def test_cuda_that_is_missing(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    done = call_cli(CHECK, folder_copy, "--in-process", "--runtime", "ort-cuda")
    assert (done.returncode, done.stdout) == (4, "")
    assert "no CUDAExecutionProvider" in done.stderr
    assert "pip install 'linattn[cuda]'" in done.stderr


def test_interrupted(folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(onnxruntime, "InferenceSession", interrupt)
    done = call_cli(CHECK, folder_copy, "--in-process", *QUICK, "--json")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1].startswith("linattn-check: interrupted")
    assert "Traceback" not in done.stderr


def test_the_page_is_written_and_needs_no_torch(folder_copy: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = check_without(["torch"], ["torch"], folder_copy, *QUICK, "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert DYNAMIC in text


def test_a_page_that_cannot_be_made_is_said_before_the_work(
    folder_copy: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    done = check_without(["matplotlib"], [], folder_copy, *QUICK, "--html", page)
    assert done.returncode == 4
    assert "pip install 'linattn[report]'" in done.stderr
    assert "PASS" not in done.stderr
    assert not page.exists()
