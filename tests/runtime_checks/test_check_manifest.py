"""``linattn-check`` on manifests that it must refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import CallCli, Outcome
from folders import CHECK, FIXED, QUICK, Document, edit, only
from linattn_runtime_checks.contract.manifest import FILE_NAME

# Manifests


def set_version(text: str) -> Callable[[Document], None]:
    return lambda document: document.update(schema_version=text)


def set_path(text: str, kind: str = "artifacts") -> Callable[[Document], None]:
    return lambda document: document[kind][0].update(path=text)


def drop(key: str) -> Callable[[Document], None]:
    return lambda document: document.pop(key)


def set_artifact(**values: object) -> Callable[[Document], None]:
    return lambda document: document["artifacts"][0].update(values)


INSIDE = "must be relative, inside the folder of the manifest"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(set_version("2.0"), ("schema 2.0, newer", "pip install -U linattn"), id="2.0"),
        pytest.param(set_version("one"), ("breaks the manifest schema at schema_version",), id="v"),
        pytest.param(drop("tool"), ("was not written by linattn-export", "None"), id="no-tool"),
        pytest.param(
            lambda document: document["tool"].update(name="make"),
            ("was not written by linattn-export", "'make'"),
            id="of-another-tool",
        ),
        pytest.param(
            drop("artifacts"), ("schema at artifacts: Field required",), id="no-artifacts"
        ),
        pytest.param(set_artifact(sha256="?"), ("schema at artifacts.0.sha256",), id="hash"),
        pytest.param(set_artifact(bytes=-1), ("schema at artifacts.0.bytes",), id="size"),
        pytest.param(set_artifact(dtype="int8"), ("schema at artifacts.0.dtype",), id="dtype"),
        pytest.param(set_artifact(axes=[]), ("batch and sequence, got none",), id="no-axes"),
        pytest.param(
            lambda document: document.update(references=[]),
            ("layer/elu/reference.safetensors", "not listed"),
            id="reference-without-hash",
        ),
        pytest.param(set_path("../model.onnx"), ("'../model.onnx'", INSIDE), id="parent"),
        pytest.param(set_path("layer/../../x"), ("'layer/../../x'", INSIDE), id="parent-within"),
        pytest.param(set_path("/etc/passwd"), ("'/etc/passwd'", INSIDE), id="absolute"),
        pytest.param(set_path("layer\\elu"), (INSIDE,), id="backslash"),
        pytest.param(set_path("C:model.onnx"), ("'C:model.onnx'", INSIDE), id="drive"),
        pytest.param(set_path("a\0b"), (INSIDE,), id="nul"),
        pytest.param(set_path(""), ("''", INSIDE), id="empty-path"),
        pytest.param(set_path("../x", "references"), ("'../x'", INSIDE), id="pack-outside"),
        pytest.param(set_path("../x", "test_data"), ("'../x'", INSIDE), id="test-data-outside"),
        pytest.param(set_artifact(reference="/x"), ("'/x'", INSIDE), id="reference-outside"),
    ],
)
def test_a_manifest_that_is_refused(
    change: Callable[[Document], None],
    says: tuple[str, ...],
    folder_copy: Path,
    call_cli: CallCli,
) -> None:
    edit(folder_copy, change)
    done = call_cli(CHECK, folder_copy, "--json")
    assert_usage(done, FILE_NAME, *says)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(b"verdict: PASS", "is not JSON", id="not-json"),
        pytest.param(b"", "is not JSON", id="empty"),
        pytest.param(b"\xff\xfe{}", "is not JSON", id="not-utf-8"),
        pytest.param(b"[" * 100_000, "is not JSON", id="nested-too-deep"),
        pytest.param(b"[]", "was not written by linattn-export", id="a-list"),
        pytest.param(b'{"tool": "linattn-export"}', "not written by linattn-export", id="tool"),
    ],
)
def test_a_manifest_that_is_none(
    content: bytes, says: str, folder_copy: Path, call_cli: CallCli
) -> None:
    (folder_copy / FILE_NAME).write_bytes(content)
    assert_usage(call_cli(CHECK, folder_copy, "--json"), FILE_NAME, says)


def assert_usage(done: Outcome, *says: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert all(part in done.stderr for part in says), done.stderr


def test_a_newer_minor_schema_is_read(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, FIXED)
    edit(folder_copy, lambda d: d.update(schema_version="1.99", signature="new in 1.99"))
    edit(folder_copy, set_artifact(compression={"kind": "new in 1.99"}))
    assert call_cli(CHECK, folder_copy, *QUICK).returncode == 0


def test_a_manifest_without_artifacts_is_unverified(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy)
    done = call_cli(CHECK, folder_copy, *QUICK)
    assert done.returncode == 5
    assert "UNVERIFIED  0 of 0 artifacts pass" in done.stderr


def test_no_such_folder(tmp_path: Path, call_cli: CallCli) -> None:
    assert_usage(call_cli(CHECK, tmp_path / "none"), f"no such folder: {tmp_path / 'none'}")


def test_a_folder_without_manifest(tmp_path: Path, call_cli: CallCli) -> None:
    says = (f"{tmp_path} holds no {FILE_NAME}", "linattn-export build")
    assert_usage(call_cli(CHECK, tmp_path), *says)


def test_unknown_runtime(folder_copy: Path, call_cli: CallCli) -> None:
    done = call_cli(CHECK, folder_copy, "--runtime", "ort-cuad", "--json")
    assert_usage(done, "unknown runtime: 'ort-cuad'", "torchscript", "did you mean 'ort-cuda'?")
