"""Whatever is wrong with a call of ``build``: the exit code, the message, the old folder intact."""

import dataclasses
import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from conftest import CallCli, Outcome, run_cli, snapshot
from linattn_export import pipeline
from linattn_export.formats import FORMATS
from linattn_models import MODELS, ModelOptions
from linattn_runtime_checks import manifest
from linattn_runtime_checks.errors import ExportError

EXPORT = "linattn_export"
# A build of a second or two.
TINY = (
    "-m elu -f torchscript -f pt2 --no-fixed --dynamic 2:8 --batch 1:2 --d-model 8 --heads 2 "
    "--no-latency -q"
)
SMALL = "-m elu --d-model 8 --heads 2 -n 4 --dynamic 1:8"
LINFORMER = "-m linformer --option linformer.max_length=64"


def row(name: str, args: str, *says: str, code: int = 2) -> object:
    """One bad call; ``{here}`` in ``args`` and ``says`` is the folder of prepared files."""
    return pytest.param(args, code, says, id=name)


NAMES = [
    row("unknown-method", "-m eluu", "unknown method: 'eluu'", "softmax", "did you mean 'elu'?"),
    row("unknown-method-unlike-any", "-m 42", "unknown method: '42'", "known: ", "linformer"),
    row("unknown-model", "--model layr", "unknown model: 'layr'", "did you mean 'layer'?"),
    row("unknown-format", "-f onxn", "unknown format: 'onxn'", "pt2", "did you mean 'onnx'?"),
    row("unknown-runtime", "--runtime ort_cpu", "'ort_cpu'", "ort-cuda", "did you mean 'ort-cpu'?"),
    row(
        "unknown-option",
        "-m linformer --option linformer.rnk=8",
        "unknown option of method 'linformer': 'rnk'",
        "known: rank, max_length",
        "did you mean 'rank'?",
    ),
    row(
        "unknown-method-in-option",
        "--option linfromer.rank=8",
        "unknown method: 'linfromer'",
        "did you mean 'linformer'?",
    ),
    row(
        "option-of-a-method-not-built",
        "-m elu --option linformer.rank=8",
        "--option linformer.*",
        "not among those to build",
    ),
    row("unknown-dtype", "--dtype fp8", "unknown dtype: 'fp8'", "known: fp32, fp16"),
    row("dtype-bf16", "--dtype bf16", "'bf16'", "known: fp32, fp16", "no bf16 kernels"),
    row("unknown-flag", "--sequence 8", "No such option", "--sequence"),
    row("stray-argument", "elu", "unexpected extra argument", "elu"),
]
OPTIONS = [
    row("option-without-method", "--option rank=8", "METHOD.FIELD=VALUE", "got 'rank=8'"),
    row("option-without-value", "--option linformer.rank", "METHOD.FIELD=VALUE", "linformer.rank="),
    row("option-with-empty-value", "--option linformer.rank=", "METHOD.FIELD=VALUE"),
    row("option-text-for-int", "--option linformer.rank=low", "must be int", "got 'low'"),
    row("option-float-for-int", "--option linformer.rank=8.5", "must be int", "got 8.5"),
    row("option-int-for-bool", "--option elu.normalize=1", "must be bool", "got 1"),
    row("option-too-small", "--option linformer.rank=0", "linformer.rank", "at least 1, got 0"),
    row("option-negative", "--option elu.eps=-1", "elu.eps must be above 0", "got -1"),
    row("option-nan", "--option elu.eps=nan", "elu.eps must be above 0", "got nan"),
]
SIZES = [
    row("length-zero", "-n 0", "-n/--seq-len must be at least 1, got 0"),
    row("length-negative", "-n -16", "-n/--seq-len must be at least 1, got -16"),
    row("length-text", "-n 16 -n long", "-n/--seq-len must be a whole number, got 'long'"),
    row("length-fraction", "-n 12.5", "-n/--seq-len must be a whole number, got '12.5'"),
    row("range-reversed", "--dynamic 64:1", "--dynamic is reversed: '64:1'", "write 1:64"),
    row("range-of-one-length", "--dynamic 16:16", "'16:16' is one length", "-n 16"),
    row("range-one-number", "--dynamic 64", "--dynamic must be MIN:MAX", "1:4096", "got '64'"),
    row("range-text", "--dynamic short:long", "whole number, got 'short'", "MIN:MAX"),
    row("range-three-parts", "--dynamic 1:2:3", "--dynamic must be MIN:MAX", "got '1:2:3'"),
    row("range-empty", "--dynamic ''", "--dynamic must be MIN:MAX", "got ''"),
    row("range-from-zero", "--dynamic 0:8", "--dynamic must be at least 1, got 0"),
    row("heads-a-word", "--heads two", "--heads must be a whole number, got 'two'"),
    row("d-model-zero", "--d-model 0", "--d-model must be at least 1, got 0"),
    row("seed-a-word", "--seed x", "--seed must be a whole number, got 'x'"),
    row("opset-a-word", "--opset latest", "--opset must be a whole number, got 'latest'"),
    row(
        "digits-beyond-its-pixels",
        "--model digits -n 128",
        "at most N_max = 64 tokens",
        "-n/--seq-len asks for 128",
    ),
    row("batch-zero", "--batch 0", "--batch must be at least 1, got 0"),
    row("batch-reversed", "--batch 8:2", "--batch is reversed: '8:2'", "write 2:8"),
    row("batch-text", "--batch many", "--batch must be a whole number, got 'many'"),
    row(
        "dynamic-beyond-linformer",
        f"{LINFORMER} --no-fixed --dynamic 1:128",
        "N_max = 64",
        "--dynamic asks for 128",
        "ask for 64 or fewer",
        "--option linformer.max_length=128",
    ),
    row(
        "length-beyond-linformer",
        f"{LINFORMER} -n 100 --dynamic 1:64",
        "N_max = 64",
        "-n/--seq-len asks for 100",
        "--option linformer.max_length=100",
    ),
    row(
        "heads-do-not-divide",
        "--d-model 32 --heads 5",
        "32 is not a multiple of 5",
        "heads that do: 1, 2, 4, 8, 16, 32",
    ),
    row("no-heads", "--heads 0", "--heads must be at least 1, got 0"),
    row("opset-16", "--opset 16", "--opset must be 17 to 23, got 16", "18 loads in the most"),
    row("opset-24", "--opset 24", "--opset must be 17 to 23, got 24", "18 loads in the most"),
    row("seed-negative", "--seed -1", "--seed must be", "got -1"),
    row("seed-too-large", f"--seed {2**64}", "--seed must be", str(2**64)),
]
CONFLICTS = [
    row("no-fixed-and-length", "--no-fixed -n 16", "--no-fixed and -n/--seq-len", "leave one out"),
    row("no-dynamic-and-range", "--no-dynamic --dynamic 1:8", "--no-dynamic and --dynamic"),
    row("nothing-left", "--no-fixed --no-dynamic", "--no-fixed and --no-dynamic", "nothing to"),
    row("no-check-and-runtime", "--no-check --runtime ort-cpu", "--no-check and --runtime"),
    row("mask-for-digits", "--model digits --mask", "digits takes no attention_mask", "--mask"),
    row("heads-for-digits", "--model digits --heads 2", "digits has trained weights", "--heads 2"),
    row(
        "cuda-without-a-gpu",
        f"{SMALL} --runtime ort-cuda",
        "ort-cuda is not available",
        "no CUDAExecutionProvider",
        "pip install 'linattn[cuda]'",
        code=4,
    ),
]
WEIGHTS = [
    row(
        "weights-missing", f"{SMALL} --weights {{here}}/none", "no such weights file", "{here}/none"
    ),
    row("weights-a-folder", f"{SMALL} --weights {{here}}", "no such weights file", "{here}"),
    *(
        row(
            f"weights-{name}",
            f"{SMALL} --weights {{here}}/{name}.safetensors",
            f"{{here}}/{name}.safetensors",
            *says,
        )
        for name, says in {
            "text": ("is not a safetensors file", "safetensors.torch.save_file"),
            "truncated": ("is not a safetensors file", "safetensors.torch.save_file"),
            "empty": ("is not a safetensors file", "safetensors.torch.save_file"),
            "lacking": ("does not fit model layer with method elu", "lacks {missing}"),
            "extra": ("does not fit model layer with method elu", "has also stray"),
            "shape": ("{missing} has shape [3]", "expected ["),
            "integers": ("{missing} has dtype torch.int64", "expected floating point"),
        }.items()
    ),
]
OUTPUTS = [
    row("output-a-file", "-o {here}/file", "{here}/file is a file", "give a folder with -o"),
    row("output-not-ours", "-o {here}/theirs", "{here}/theirs is not empty", "another folder"),
    row("output-below-a-file", "-o {here}/file/sub", "{here}/file/sub cannot be written"),
]
ROWS = NAMES + OPTIONS + SIZES + CONFLICTS + WEIGHTS + OUTPUTS


def state() -> dict[str, Tensor]:
    """The weights that the builds of ``SMALL`` take."""
    options = ModelOptions(method="elu", d_model=8, heads=2)
    return MODELS["layer"].build(options).state_dict()


MISSING = min(state())


@pytest.fixture
def here(small_folder: Path, tmp_path: Path) -> Path:
    """A folder with a previous output, a file, a folder of someone else's and bad weights."""
    shutil.copytree(small_folder, tmp_path / "previous")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("theirs")
    good = state()
    save_file(good, tmp_path / "good.safetensors")
    whole = (tmp_path / "good.safetensors").read_bytes()
    (tmp_path / "text.safetensors").write_text("these are not weights")
    (tmp_path / "truncated.safetensors").write_bytes(whole[:-10])
    (tmp_path / "empty.safetensors").write_bytes(b"")
    lacking = {name: tensor for name, tensor in good.items() if name != MISSING}
    save_file(lacking, tmp_path / "lacking.safetensors")
    save_file(good | {"stray": torch.zeros(1)}, tmp_path / "extra.safetensors")
    save_file(good | {MISSING: torch.zeros(3)}, tmp_path / "shape.safetensors")
    save_file(good | {MISSING: good[MISSING].long()}, tmp_path / "integers.safetensors")
    return tmp_path


def words(args: str, here: Path) -> list[str]:
    """The command line of ``args``, writing over the previous output unless it says otherwise."""
    return ["build", "-o", str(here / "previous"), *shlex.split(args.replace("{here}", str(here)))]


def assert_refused(done: Outcome, code: int, says: tuple[str, ...], here: Path) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in says:
        assert part.replace("{here}", str(here)).replace("{missing}", MISSING) in done.stderr


@pytest.mark.parametrize(("args", "code", "says"), ROWS)
def test_refused(
    args: str,
    code: int,
    says: tuple[str, ...],
    here: Path,
    call_cli: CallCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    before = snapshot(here)
    done = call_cli(EXPORT, *words(args, here))
    assert_refused(done, code, says, here)
    assert snapshot(here) == before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param("-m eluu", "did you mean 'elu'?", id="unknown-method"),
        pytest.param("--nosuch", "No such option", id="unknown-flag"),
        pytest.param("-o {here}/file", "is a file", id="output-a-file"),
        pytest.param(
            f"{SMALL} --weights {{here}}/lacking.safetensors", "it lacks", id="weights-lacking"
        ),
    ],
)
def test_refused_as_a_command(args: str, says: str, here: Path) -> None:
    before = snapshot(here)
    assert_refused(run_cli(EXPORT, *words(args, here)), 2, (says,), here)
    assert snapshot(here) == before


def test_output_without_permission(
    here: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = os.access
    # Root may write anywhere, so the permission is denied here and not on the disk.
    monkeypatch.setattr(
        os, "access", lambda path, mode, **more: not mode & os.W_OK and access(path, mode, **more)
    )
    before = snapshot(here)
    done = call_cli(EXPORT, *words(SMALL, here))
    assert_refused(done, 2, ("{here}/previous cannot be written", "no permission in {here}"), here)
    assert snapshot(here) == before


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
