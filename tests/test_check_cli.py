"""``linattn-check`` on whole, damaged, lying and wrong folders."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper

from conftest import CallCli, Outcome, run_cli, snapshot
from linattn_runtime_checks.errors import EnvironmentProblem
from linattn_runtime_checks.integrity import stored
from linattn_runtime_checks.manifest import FILE_NAME
from linattn_runtime_checks.runtimes import onnx_runtime

CHECK = "linattn_runtime_checks"
DYNAMIC = "layer/elu/onnx/dynamic"
FIXED = "layer/elu/onnx/n16"
SCRIPT = "layer/elu/torchscript/dynamic"
ONNX = f"{DYNAMIC}/model.onnx"
OTHER = "layer/linformer/onnx/dynamic"
# Half a second, where all runtimes and latency take ten.
QUICK = ("--runtime", "ort-cpu", "--no-latency")

Document = dict[str, Any]


def edit(folder: Path, change: Callable[[Document], object]) -> None:
    """Change the manifest of ``folder``."""
    path = folder / FILE_NAME
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def entry(document: Document, name: str) -> Document:
    """The artifact called ``name`` in a manifest or in a report."""
    found: Document = next(item for item in document["artifacts"] if item["id"] == name)
    return found


def only(folder: Path, *names: str) -> None:
    """Leave nothing but the named artifacts in the manifest."""

    def change(document: Document) -> None:
        document["artifacts"] = [entry(document, name) for name in names]

    edit(folder, change)


def report_of(done: Outcome) -> Document:
    """The report that ``--json`` printed, which must be all there is on stdout."""
    report: Document = json.loads(done.stdout)
    return report


def codes(report: Document, name: str) -> set[str]:
    """The codes of all findings about one artifact."""
    found = entry(report, name)
    findings = found["findings"] + [f for r in found["runtimes"] for f in r["findings"]]
    return {finding["code"] for finding in findings}


def judged(report: Document) -> set[str]:
    """The artifacts that some runtime compared."""
    return {
        artifact["id"]
        for artifact in report["artifacts"]
        if any(runtime["cases"] for runtime in artifact["runtimes"])
    }


def flip(path: Path) -> None:
    """Change one byte in the middle; the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


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
    assert text.startswith("# linattn report: EXPORT\n")
    assert f"- `file_damaged` {ONNX} was altered" in text
    assert f"| {OTHER} |" in text


def test_summary_that_cannot_be_written(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, FIXED)
    target = folder_copy / "nowhere" / "summary.md"
    done = call_cli(CHECK, folder_copy, *QUICK, "--summary", target)
    assert done.returncode == 2
    assert f"--summary {target} cannot be written: No such file" in done.stderr


# Without torch


def check_without(blocked: list[str], watched: list[str], *args: object) -> Outcome:
    """Run the command with ``blocked`` unimportable; fail if one of ``watched`` was imported."""
    program = f"""
import sys
sys.modules.update(dict.fromkeys({blocked}))
sys.argv = {["linattn-check", *map(str, args)]}
from linattn_runtime_checks.cli import main
try:
    main()
finally:
    imported = [name for name in {watched} if sys.modules.get(name)]
    assert not imported, imported
"""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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


# Files that are not what was written


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def link_outside(path: Path) -> None:
    outside = path.parents[4].parent / "outside.onnx"
    path.rename(outside)
    path.symlink_to(outside)


def link_folder_outside(path: Path) -> None:
    outside = path.parents[4].parent / "outside"
    path.parent.rename(outside)
    path.parent.symlink_to(outside)


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(truncate, "is truncated: ", id="truncated"),
        pytest.param(lengthen, "is longer than it was: ", id="longer"),
        pytest.param(flip, "was altered: its SHA-256 is not the one", id="one-bit"),
        pytest.param(Path.unlink, "is missing", id="missing"),
        pytest.param(link_outside, "is a link that leads out of the folder", id="link"),
        pytest.param(link_folder_outside, "is a link that leads out", id="link-of-its-folder"),
        pytest.param(link_to_itself, "cannot be read: ", id="link-to-itself"),
    ],
)
def test_a_damaged_artifact_is_named_and_not_loaded(
    damage: Callable[[Path], None],
    says: str,
    folder_copy: Path,
    call_cli: CallCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = []
    load = onnxruntime.InferenceSession

    def noted(path: str, *args: Any, **kwargs: Any) -> Any:
        loaded.append(Path(path))
        return load(path, *args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", noted)
    damage(folder_copy / ONNX)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    report = report_of(done)
    assert (done.returncode, report["verdict"]) == (3, "EXPORT")
    assert f"file_damaged: {ONNX} {says}" in done.stderr
    assert "build the folder again or restore the file" in done.stderr
    assert {finding["code"] for finding in report["findings"]} == {"file_damaged"}
    assert judged(report) == {FIXED, OTHER, OTHER.replace("dynamic", "n16")}
    assert set(loaded) == {folder_copy / name / "model.onnx" for name in judged(report)}


@pytest.mark.parametrize(
    ("runtime", "file", "module"),
    [
        pytest.param("torchscript", "model.pt", torch.jit, id="torchscript"),
        pytest.param("pt2", "model.pt2", torch.export, id="pt2"),
    ],
)
def test_a_changed_file_that_would_run_code_is_not_loaded(
    runtime: str,
    file: str,
    module: Any,
    folder_copy: Path,
    call_cli: CallCli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = []
    load = module.load

    def noted(path: Any, *args: Any, **kwargs: Any) -> Any:
        loaded.append(Path(path))
        return load(path, *args, **kwargs)

    monkeypatch.setattr(module, "load", noted)
    changed, whole = f"layer/elu/{runtime}/dynamic", f"layer/elu/{runtime}/n16"
    only(folder_copy, changed, whole)
    flip(folder_copy / changed / file)
    done = call_cli(CHECK, folder_copy, "--runtime", runtime, "--no-latency")
    assert done.returncode == 3
    assert f"file_damaged: {changed}/{file} was altered" in done.stderr
    assert loaded == [folder_copy / whole / file]


def test_a_changed_golden_pack_judges_nothing(folder_copy: Path, call_cli: CallCli) -> None:
    flip(folder_copy / "layer/elu/reference.safetensors")
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 3
    assert "file_damaged: layer/elu/reference.safetensors was altered" in done.stderr
    assert judged(report_of(done)) == {OTHER, OTHER.replace("dynamic", "n16")}


def test_changed_test_data_is_named(folder_copy: Path, call_cli: CallCli) -> None:
    flip(folder_copy / DYNAMIC / "test_data_set_0/input_0.pb")
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 3
    assert f"file_damaged: {DYNAMIC}/test_data_set_0/input_0.pb was altered" in done.stderr
    assert len(judged(report_of(done))) == 4


def test_a_file_that_does_not_load(folder_copy: Path, call_cli: CallCli) -> None:
    (folder_copy / ONNX).write_bytes(b"not a graph")
    restamp(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 3
    assert codes(report_of(done), DYNAMIC) == {"load_failed"}
    assert f"{DYNAMIC} on ort-cpu" in done.stderr
    assert len(judged(report_of(done))) == 3


def restamp(folder: Path, name: str) -> None:
    """Let the manifest vouch for the bytes that are there now."""
    edit(folder, lambda d: entry(d, name).update(stored(folder, entry(d, name)["path"])))


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


# Claims that the files do not keep


def declare(axis: str, low: int, high: int) -> Callable[[Document], None]:
    def change(artifact: Document) -> None:
        (found,) = [item for item in artifact["axes"] if item["name"] == axis]
        found["declared"] = [low, high]

    return change


def promise(kind: str, axis: int, size: int | str) -> Callable[[Document], None]:
    def change(artifact: Document) -> None:
        artifact[kind][0]["shape"][axis] = size

    return change


@pytest.mark.parametrize(
    ("name", "change", "code", "says"),
    [
        pytest.param(
            DYNAMIC,
            declare("sequence", 1, 128),
            "axis_unverified_range",
            "axis sequence declares 1:128 but was verified on 1:64 only",
            id="longer-than-verified",
        ),
        pytest.param(
            DYNAMIC,
            declare("batch", 1, 8),
            "axis_unverified_range",
            "axis batch declares 1:8 but was verified on 1:4 only",
            id="larger-batch-than-verified",
        ),
        pytest.param(
            DYNAMIC,
            promise("inputs", 1, "tokens"),
            "axis_renamed",
            "input hidden_states: axis 1 (tokens) was renamed to 'sequence'",
            id="axis-renamed",
        ),
        pytest.param(
            FIXED,
            promise("outputs", 1, "sequence"),
            "axis_became_static",
            "output output: axis 1 (sequence) became static: 16",
            id="axis-static",
        ),
        pytest.param(
            DYNAMIC,
            promise("inputs", 1, 16),
            "axis_not_fixed",
            "input hidden_states: axis 1 is 'sequence', promised 16",
            id="axis-not-fixed",
        ),
        pytest.param(
            DYNAMIC,
            lambda artifact: artifact["inputs"][0].update(dtype="float16"),
            "dtype_mismatch",
            "input hidden_states is float32, promised float16",
            id="dtype",
        ),
        pytest.param(
            DYNAMIC,
            lambda artifact: artifact["outputs"][0]["shape"].append(1),
            "shape_mismatch",
            "output output has shape ['batch', 'sequence', 32], promised",
            id="rank",
        ),
        pytest.param(
            DYNAMIC,
            lambda artifact: artifact["inputs"][0].update(name="x"),
            "inputs_differ",
            "inputs are ['hidden_states'], promised ['x']",
            id="input-renamed",
        ),
        pytest.param(
            DYNAMIC,
            declare("sequence", 16, 16),
            "length_not_refused",
            "is fixed to sequence length 16 but ran one of 17",
            id="dynamic-listed-as-fixed",
        ),
    ],
)
def test_a_claim_that_the_file_does_not_keep(
    name: str,
    change: Callable[[Document], None],
    code: str,
    says: str,
    folder_copy: Path,
    call_cli: CallCli,
) -> None:
    only(folder_copy, name)
    edit(folder_copy, lambda document: change(entry(document, name)))
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 1, done.stderr
    assert codes(report_of(done), name) == {code}
    assert f"{code}: {name}" in done.stderr
    assert says in done.stderr


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_torchscript_with_other_names_than_promised(
    kind: str, folder_copy: Path, call_cli: CallCli
) -> None:
    only(folder_copy, SCRIPT)
    edit(folder_copy, lambda document: entry(document, SCRIPT)[kind][0].update(name="x"))
    done = call_cli(CHECK, folder_copy, "--runtime", "torchscript", "--no-latency")
    assert done.returncode == 1, done.stderr
    assert "x" in done.stderr


def test_an_onnx_file_that_renames_its_output(folder_copy: Path, call_cli: CallCli) -> None:
    def rename(model: onnx.ModelProto) -> None:
        (node,) = [node for node in model.graph.node if "output" in node.output]
        node.output[0] = model.graph.output[0].name = "logits"

    alter(folder_copy, DYNAMIC, rename)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 1, done.stderr
    assert codes(report_of(done), DYNAMIC) == {"outputs_differ", "output_missing"}
    assert "outputs are ['logits'], promised ['output']" in done.stderr


# Wrong numbers


def alter(folder: Path, name: str, change: Callable[[onnx.ModelProto], None]) -> None:
    """Change the graph of an ONNX artifact, and let the manifest vouch for it."""
    only(folder, name)
    path = folder / name / "model.onnx"
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    restamp(folder, name)


def change_weight(value: Callable[[float], float]) -> Callable[[onnx.ModelProto], None]:
    """One element of the largest matrix becomes ``value`` of itself and the largest element."""

    def change(model: onnx.ModelProto) -> None:
        tensor = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        weights = numpy_helper.to_array(tensor).copy()
        weights[3, 5] += value(float(np.abs(weights).max()))
        tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))

    return change


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
    assert codes(report_of(done), DYNAMIC) == {"nonfinite_mismatch"}
    assert "NaN in " in done.stderr


# The runtime is not what was asked for


def test_two_onnx_runtimes_over_each_other(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_runtime, "_installed", lambda name: True)
    done = call_cli(CHECK, folder_copy, "--json")
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
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    report = report_of(done)
    assert (done.returncode, report["verdict"]) == (4, "ENVIRONMENT")
    assert codes(report, DYNAMIC) == {"provider_fallback"}
    assert judged(report) == set()


def test_cuda_that_is_missing(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    done = call_cli(CHECK, folder_copy, "--runtime", "ort-cuda")
    assert (done.returncode, done.stdout) == (4, "")
    assert "no CUDAExecutionProvider" in done.stderr
    assert "pip install 'linattn[cuda]'" in done.stderr


def test_interrupted(folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(onnxruntime, "InferenceSession", interrupt)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1].startswith("linattn-check: interrupted")
    assert "Traceback" not in done.stderr
