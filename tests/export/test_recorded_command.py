"""The command in a manifest: the one that makes the folder, or none."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from conftest import CallCli
from linattn_export import export_module
from linattn_export.options.request import BuildRequest, command_of
from linattn_runtime_checks.contract.manifest import FILE_NAME, Manifest, read

SPEC = {"symbols": {"batch": "1:2", "sequence": "1:8"},
        "inputs": {"input": {"shape": ["batch", "sequence", 8]}}}  # fmt: skip


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a call from Python wrote; read it, do not change it."""
    folder = tmp_path_factory.mktemp("exported") / "out"
    export_module(nn.Linear(8, 8), SPEC, folder, formats=["pt2"], check=False, quiet=True)
    return folder


def test_a_module_at_hand_has_no_command(exported: Path, call_cli: CallCli) -> None:
    assert json.loads((exported / FILE_NAME).read_text())["command"] is None
    shown = call_cli("linattn_export", "inspect", exported)
    assert shown.returncode == 0
    assert "command    none: made by a call from Python" in shown.stdout
    shown = call_cli("linattn_export", "inspect", exported, "--json")
    assert json.loads(shown.stdout)["command"] is None


def test_the_folder_of_a_module_at_hand_is_checked(
    exported: Path, call_cli: CallCli, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    done = call_cli("linattn_runtime_checks", exported, "--no-latency", "--html", page)
    assert done.returncode == 0, done.stderr
    assert "build --model layer" not in page.read_text() + done.stdout + done.stderr


def test_older_manifests_are_read(exported: Path) -> None:
    document = json.loads((exported / FILE_NAME).read_text())
    document |= {"schema_version": "1.5", "command": ["linattn-export", "build"]}
    assert Manifest.model_validate(document).command == ["linattn-export", "build"]


def of_layer(folder: Path) -> list[str]:
    return ["-m", "elu", "--d-model", "16", "--heads", "2", "-n", "8", "--dynamic", "1:16",
            "--batch", "1:2", "--mask"]  # fmt: skip


def of_own(folder: Path) -> list[str]:
    (folder / "x.toml").write_text(
        '[symbols]\nbatch = "1:2"\nsequence = "1:8"\n[inputs.x]\nshape = ["sequence", "batch", 8]\n'
    )
    return ["--module", "own_nets:SequenceFirst", "--inputs", str(folder / "x.toml")]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [of_layer, of_own])
def test_the_recorded_command_makes_the_folder_again(
    flags: Callable[[Path], list[str]],
    call_cli: CallCli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From a folder in which the files lie that it names, since it holds no paths."""
    monkeypatch.chdir(tmp_path)
    common = ["-f", "pt2", "--seed", "3", "--no-latency", "--runtime", "pt2", "-q"]
    done = call_cli("linattn_export", "build", "-o", "one", *flags(tmp_path), *common)
    assert done.returncode == 0, done.stderr
    first = read(Path("one"))
    assert first.command is not None
    program, *words = first.command
    assert program == "linattn-export"
    done = call_cli("linattn_export", *words, "-o", "two", "-q")
    assert done.returncode == 0, done.stderr
    again = read(Path("two"))
    assert again.command == first.command
    assert [a.model_dump() for a in again.artifacts] == [a.model_dump() for a in first.artifacts]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (BuildRequest(), ""),
        (BuildRequest(check=False), "--no-check"),
        (BuildRequest(latency=False), "--no-latency"),
        (BuildRequest(runtimes=("ort-cpu", "pt2")), "--runtime ort-cpu --runtime pt2"),
    ],
)
def test_what_is_judged_is_part_of_the_command(request_: BuildRequest, words: str) -> None:
    assert " ".join(command_of(request_)).partition(" --dtype fp32")[2].strip() == words
