"""Whatever is wrong with a call of ``build``: the exit code, the message, the old folder intact."""

import os
from pathlib import Path

import onnxruntime
import pytest

from build_calls import EXPORT, SMALL, assert_refused, words
from conftest import CallCli, run_cli, snapshot

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
    row(
        "bytes-without-state",
        "--model bytes -m elu",
        "needs a method that carries a state",
        "gated_delta",
    ),
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
    row("weights-a-folder", f"{SMALL} --weights {{here}}", "{here} is not one file of weights"),
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
            "integers": ("{missing} has dtype int64", "expected float32"),
        }.items()
    ),
]


OUTPUTS = [
    row("output-a-file", "-o {here}/file", "{here}/file is a file", "give a folder with -o"),
    row("output-not-ours", "-o {here}/theirs", "{here}/theirs is not empty", "another folder"),
    row("output-below-a-file", "-o {here}/file/sub", "{here}/file/sub cannot be written"),
]


ROWS = NAMES + OPTIONS + SIZES + CONFLICTS + WEIGHTS + OUTPUTS


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
        pytest.param("--nosuch", "No such option", id="unknown-flag"),
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
