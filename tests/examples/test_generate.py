"""The decoding example, as a user runs it."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.errors import ExitCode
from readme_blocks import block
from roots import ROOT

EXAMPLE = ROOT / "examples" / "generate.py"
WITHOUT_TORCH = (
    "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The step graph, which is also a prefill of a prompt of one byte: that of any takes longer."""
    made = tmp_path_factory.mktemp("bytes") / "artifacts"
    request = BuildRequest(
        output=made,
        models=("bytes",),
        methods=("gated_delta",),
        entries=("step",),
        formats=("onnx",),
        lengths=(),
        batch="1",
        latency=False,
        quiet=True,
    )
    assert build(request).exit_code is ExitCode.PASS
    path = made / "linattn_manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["artifacts"].append(manifest["artifacts"][0] | {"entry": "prefill"})
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return made


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False
    )


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_500_tokens_are_those_of_eager_pytorch(folder: Path, temperature: float) -> None:
    chosen = ["--prompt", "R", "--temperature", temperature]
    result = run(EXAMPLE, "--folder", folder, "--tokens", 500, "--check", *chosen)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("R")
    assert "eager PyTorch gives the same 500 tokens" in result.stdout
    assert re.search(r"^500 tokens, \d+ tokens/s$", result.stdout, re.MULTILINE)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_flat(folder: Path) -> None:
    result = run(EXAMPLE, "--folder", folder, "--prompt", "R", "--tokens", 2000)
    found = re.findall(r"resident memory after (\d+) tokens: ([\d.]+) MB", result.stdout)
    assert [count for count, _ in found] == ["50", "2000"]
    early, late = (float(size) for _, size in found)
    assert late - early < 3


def test_decoding_needs_no_torch(folder: Path) -> None:
    asked = ["--folder", folder, "--prompt", "R", "--tokens", 20]
    result = run("-c", WITHOUT_TORCH, EXAMPLE, *asked)
    assert result.returncode == 0, result.stderr
    assert "20 tokens" in result.stdout
    needs = run("-c", WITHOUT_TORCH, EXAMPLE, *asked, "--check")
    assert needs.returncode == 1
    assert "torch" in needs.stderr


def test_a_token_that_differs_is_found(
    example: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    likeliest = example.chooser(0)
    tokens = list(example.generate(folder, b"R", 8, likeliest))
    assert example.eager(b"R", 8, likeliest) == tokens
    other = [*tokens[:5], tokens[5] ^ 1, *tokens[6:]]
    monkeypatch.setattr(example, "eager", lambda prompt, count, choose: other)
    command = ["generate.py", "--folder", str(folder), "--prompt", "R", "--tokens", "8"]
    monkeypatch.setattr(sys, "argv", [*command, "--check"])
    with pytest.raises(SystemExit, match="token 5 differs from that of eager PyTorch"):
        example.main()


def test_a_folder_without_the_step_graph_is_said_to_be(
    example: ModuleType, folder: Path, tmp_path: Path
) -> None:
    manifest = json.loads((folder / "linattn_manifest.json").read_text(encoding="utf-8"))
    manifest["artifacts"] = manifest["artifacts"][1:]
    (tmp_path / "linattn_manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(SystemExit, match="no ONNX file of bytes/step; build it with --entry step"):
        example.open_graph(tmp_path, "step")


def test_the_command_of_the_readme_builds_the_graphs_first() -> None:
    program, example, *asked = shlex.split(block("decoding"))
    assert (program, EXAMPLE.name) == ("python", Path(example).name)
    result = run(EXAMPLE, *asked)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Return a list of")
    assert "eager PyTorch gives the same 500 tokens" in result.stdout
