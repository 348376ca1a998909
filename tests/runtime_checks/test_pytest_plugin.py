"""``pytest --linattn DIR``, in processes of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from folders import DYNAMIC, FIXED, SCRIPT, alter, change_weight, flip, only, restamp
from linattn_runtime_checks.contract.manifest import FILE_NAME, read

pytest_plugins = ("pytester",)
CPU = ("--linattn", "artifacts", "--linattn-runtime", "ort-cpu")


@pytest.fixture
def folder(folder_copy: Path, pytester: pytest.Pytester) -> Path:
    """A folder that a test may damage, where pytest runs."""
    return folder_copy.rename(pytester.path / "artifacts")


def run(pytester: pytest.Pytester, *args: object) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*map(str, args), timeout=300)


def counted(result: pytest.RunResult, **expected: int) -> None:
    found = result.parseoutcomes()
    kept = {name: found.get(name, 0) for name in ("passed", "failed", "errors", *expected)}
    assert kept == {"passed": kept["passed"], "failed": 0, "errors": 0} | expected, found


def test_a_folder_that_passes(folder: Path, pytester: pytest.Pytester) -> None:
    only(folder, DYNAMIC, FIXED, SCRIPT)
    result = run(pytester, "-v", "-rs", *CPU)
    assert result.ret == 0
    counted(result)
    result.stdout.fnmatch_lines(
        [
            f"artifacts::files::{DYNAMIC}/model.onnx PASSED*",
            f"artifacts::{DYNAMIC}::ort-cpu::loading PASSED*",
            f"artifacts::{DYNAMIC}::ort-cpu::signature PASSED*",
            f"artifacts::{DYNAMIC}::ort-cpu::normal-b1-n16[[]optimizer-on] PASSED*",
            f"artifacts::{DYNAMIC}::ort-cpu::alone PASSED*",
            f"artifacts::{DYNAMIC}::ort-cpu::range PASSED*",
            f"artifacts::{FIXED}::ort-cpu::refusal PASSED*",
            f"artifacts::{SCRIPT}::judged SKIPPED*",
            f"SKIPPED*: not_judged: torchscript: not asked for (artifacts::{SCRIPT}::judged)",
        ]
    )


@pytest.mark.slow
def test_collecting_judges_nothing(folder: Path, pytester: pytest.Pytester) -> None:
    for path in folder.rglob("model.*"):
        path.write_bytes(b"not a model")
    result = run(pytester, "--collect-only", "-q", *CPU)
    assert result.ret == 0
    manifest = read(folder)
    lines = [line for line in result.outlines if line.startswith("artifacts::")]
    assert len(lines) == len(set(lines))
    assert sum(line.startswith("artifacts::files::") for line in lines) == len(manifest.files())
    for artifact in manifest.artifacts:
        assert any(line.startswith(f"artifacts::{artifact.id}::") for line in lines)


def test_a_damaged_file_fails_and_what_needs_it_is_skipped(
    folder: Path, pytester: pytest.Pytester
) -> None:
    only(folder, DYNAMIC, FIXED)
    flip(folder / DYNAMIC / "model.onnx")
    result = run(pytester, "-v", *CPU)
    assert result.ret == 1
    counted(result, failed=1)
    result.stdout.fnmatch_lines(
        [
            f"artifacts::{DYNAMIC}::ort-cpu::alone SKIPPED*",
            f"artifacts::{FIXED}::ort-cpu::alone PASSED*",
            f"*_ artifacts: files: {DYNAMIC}/model.onnx _*",
            f"file_damaged: {DYNAMIC}/model.onnx was altered*",
            "  fix: restore the file or build the folder again*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.slow
def test_a_damaged_golden_pack(folder: Path, pytester: pytest.Pytester) -> None:
    only(folder, DYNAMIC)
    (folder / "layer/elu/reference.safetensors").write_bytes(b"\0" * 100)
    result = run(pytester, *CPU)
    assert result.ret == 1
    counted(result, failed=1, passed=result.parseoutcomes()["passed"])
    result.stdout.fnmatch_lines(["file_damaged: layer/elu/reference.safetensors is truncated*"])


@pytest.mark.slow
def test_wrong_numbers_fail_by_code_message_and_fix(
    folder: Path, pytester: pytest.Pytester
) -> None:
    alter(folder, DYNAMIC, change_weight(lambda largest: largest / 1000))
    result = run(pytester, "-v", *CPU)
    assert result.ret == 1
    assert result.parseoutcomes()["failed"] > 10
    result.stdout.fnmatch_lines(
        [
            f"artifacts::{DYNAMIC}::ort-cpu::loading PASSED*",
            f"artifacts::{DYNAMIC}::ort-cpu::range SKIPPED*",
            "parity_exceeded: *x the rounding of this input, at most 4x allowed*",
            "  fix: see the blame lines of the report*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_nodes.py:*Error*")
    again = run(pytester, "--lf", *CPU)
    counted(again, failed=result.parseoutcomes()["failed"], passed=0)


@pytest.mark.slow
def test_a_file_that_does_not_load(folder: Path, pytester: pytest.Pytester) -> None:
    only(folder, DYNAMIC)
    (folder / DYNAMIC / "model.onnx").write_bytes(b"not a graph")
    restamp(folder, DYNAMIC)
    result = run(pytester, "-rs", *CPU)
    assert result.ret == 1
    counted(result, failed=1)
    result.stdout.fnmatch_lines(["load_failed: *", "SKIPPED*not reached; see loading (*"])


@pytest.mark.slow
def test_one_test_can_be_named(folder: Path, pytester: pytest.Pytester) -> None:
    one = f"artifacts::{DYNAMIC}::ort-cpu::normal-b1-n16[optimizer-on]"
    result = run(pytester, "-v", *CPU, one)
    result.stdout.fnmatch_lines([f"{one.replace('[', '[[]')} PASSED*"])
    counted(result, passed=1)
    both_modes = run(pytester, *CPU, one.partition("[")[0])
    counted(both_modes, passed=2)
    none = run(pytester, *CPU, f"artifacts::{DYNAMIC}::ort-cpu::no-such-case")
    assert none.ret == pytest.ExitCode.USAGE_ERROR
    none.stderr.fnmatch_lines(["ERROR: *has no test*no-such-case*--collect-only lists*"])


@pytest.mark.slow
def test_beside_other_tests_and_below_a_folder_that_pytest_skips(
    folder: Path, pytester: pytest.Pytester
) -> None:
    only(folder, FIXED)
    pytester.makepyfile(test_mine="def test_mine(): pass")
    (pytester.path / "build").mkdir()
    folder.rename(pytester.path / "build" / "artifacts")
    judged = ("--linattn", "build/artifacts", "--linattn-runtime", "ort-cpu")
    every = run(pytester, "-v", "-k", "mine or alone", *judged)
    counted(every, passed=2)
    every.stdout.fnmatch_lines([f"build/artifacts::{FIXED}::ort-cpu::alone PASSED*"])
    only_these = run(pytester, "-v", *judged, "build/artifacts", "-k", "mine or alone")
    counted(only_these, passed=1)


@pytest.mark.alone
@pytest.mark.slow
def test_two_workers(folder: Path, pytester: pytest.Pytester) -> None:
    only(folder, DYNAMIC, FIXED)
    plain = run(pytester, *CPU).parseoutcomes()
    for distribution in ("load", "loadscope"):
        shared = run(pytester, "-n", "2", "--dist", distribution, *CPU)
        assert shared.ret == 0
        assert shared.parseoutcomes() == plain


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param(
            ("--linattn", "artifacts", "--linattn-runtime", "ort-cuad"),
            "ERROR: unknown runtime: 'ort-cuad'*did you mean 'ort-cuda'?*",
            id="unknown-runtime",
        ),
        pytest.param(("--linattn", "none"), "ERROR: no such folder: *none*", id="no-folder"),
        pytest.param(("--linattn", "empty"), f"ERROR: *empty holds no {FILE_NAME}*", id="empty"),
        pytest.param(
            ("--linattn-runtime", "ort-cpu"), "ERROR: *add --linattn DIR*", id="no-linattn"
        ),
        pytest.param((*CPU, "-n", "2", "--linattn", "none"), "ERROR: no such*", id="workers"),
    ],
)
def test_what_cannot_be_used_stops_the_run(
    args: tuple[str, ...], says: str, folder: Path, pytester: pytest.Pytester
) -> None:
    (pytester.path / "empty").mkdir()
    result = run(pytester, *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])
    result.stderr.no_fnmatch_line("*Traceback*")


@pytest.mark.slow
def test_a_runtime_that_was_asked_for_and_is_missing(
    folder: Path, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("import sys\nsys.modules['torch'] = None\n")
    result = run(pytester, "--linattn", "artifacts", "--linattn-runtime", "pt2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: runtime pt2 is not available: torch is not installed*"])


def test_the_plug_in_is_light_and_idle_without_its_options(pytester: pytest.Pytester) -> None:
    program = (
        "import sys\n"
        "import linattn_runtime_checks.pytest_plugin\n"
        "heavy = {'numpy', 'pydantic', 'torch', 'onnxruntime'} & sys.modules.keys()\n"
        "ours = [name for name in sys.modules if name.startswith('linattn_runtime_checks.')]\n"
        "assert not heavy, heavy\n"
        "assert ours == ['linattn_runtime_checks.pytest_plugin'], ours\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    pytester.makepyfile(
        "import sys\n"
        "def test_loaded(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.hasplugin('linattn')\n"
        "    assert not {'pydantic', 'torch', 'onnxruntime'} & sys.modules.keys()\n"
    )
    result = run(pytester, "-p", "no:hypothesispytest")
    counted(result, passed=1)
