"""The main job, end to end, on small models."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from safetensors.torch import save_file

from conftest import snapshot
from linattn import METHODS, MultiHeadAttention
from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest, command_of
from linattn_models import MODELS
from linattn_runtime_checks.contract import manifest
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.results.report import Report
from roots import ROOT
from siblings import siblings

ONE_MACHINE = (b"/home/", b"/root/", b"/tmp/", b"site-packages", b"Traceback", b'.py", line')

RANK_8 = {"linformer": {"rank": 8, "max_length": 64}}


def small(tmp_path: Path, **changes: object) -> tuple[Path, Report]:
    """Build into a new folder; small unless ``changes`` say otherwise."""
    fields: dict[str, object] = {
        "output": tmp_path / "out",
        "methods": ("elu",),
        "formats": ("onnx",),
        "lengths": (16,),
        "dynamic": "1:40",
        "batch": "1:4",
        "d_model": 16,
        "heads": 2,
        "latency": False,
        "quiet": True,
    }
    request = BuildRequest(**(fields | changes))  # type: ignore[arg-type]
    return request.output, build(request)


def session(folder: Path, place: str) -> ort.InferenceSession:
    path = folder / place / "model.onnx"
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_the_folder_is_laid_out_as_designed(small_folder: Path) -> None:
    found = {str(p.relative_to(small_folder)) for p in small_folder.rglob("*") if p.is_file()}
    expected = {"linattn_manifest.json", "report.json", "report.md", "report.html"}
    for method in ("elu", "linformer"):
        expected.add(f"layer/{method}/reference.safetensors")
        for variant, sets in (("dynamic", (0, 1)), ("n16", (0,))):
            place = f"layer/{method}/onnx/{variant}"
            expected |= {
                f"{place}/model.onnx",
                f"layer/{method}/torchscript/{variant}/model.pt",
                f"layer/{method}/pt2/{variant}/model.pt2",
            }
            for k in sets:
                expected |= {f"{place}/test_data_set_{k}/{x}_0.pb" for x in ("input", "output")}
    assert found == expected


def test_no_artifact_holds_a_path_or_a_stack_trace(small_folder: Path) -> None:
    here = str(ROOT).encode()
    for path in small_folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [text for text in (*ONE_MACHINE, here) if text in content], path


def test_the_onnx_file_says_what_it_is(small_folder: Path) -> None:
    model = onnx.load(small_folder / "layer/linformer/onnx/dynamic/model.onnx")
    assert model.ir_version == 8
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 18)]
    found = {item.key: item.value for item in model.metadata_props}
    assert found["linattn.method"] == "linformer"
    assert json.loads(found["linattn.config"]) == {"rank": 8, "max_length": 64}
    assert found["linattn.verified_sequence"] == "1:64"
    (value,) = model.graph.input
    axes = [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
    assert (value.name, axes) == ("hidden_states", ["batch", "sequence", 32])
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node)


def test_plain_onnxruntime_gives_what_pytorch_gives(small_folder: Path) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(32, 2, method="elu").eval()
    hidden = torch.randn(3, 53, 32)
    (output,) = session(small_folder, "layer/elu/onnx/dynamic").run(
        ["output"], {"hidden_states": hidden.numpy()}
    )
    # the same weights, seed 0; rounding of two exact-order sums of 53 terms
    np.testing.assert_allclose(output, layer(hidden).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_test_data_sets_are_in_the_form_of_onnx_backend_tests(small_folder: Path) -> None:
    place = small_folder / "layer/elu/onnx/dynamic"
    for k in (0, 1):
        tensors = {}
        for name in ("input_0", "output_0"):
            proto = onnx.TensorProto.FromString(
                (place / f"test_data_set_{k}/{name}.pb").read_bytes()
            )
            tensors[proto.name] = onnx.numpy_helper.to_array(proto)
        (output,) = session(small_folder, "layer/elu/onnx/dynamic").run(
            ["output"], {"hidden_states": tensors["hidden_states"]}
        )
        np.testing.assert_allclose(output, tensors["output"], rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (
        small(tmp_path / name, formats=(), methods=("linformer",), options=RANK_8, check=False)[0]
        for name in ("a", "b")
    )
    # They hold times.
    ignored = {"linattn_manifest.json", "report.json", "report.md", "report.html"}
    left, right = (
        {n: h for n, h in snapshot(f).items() if n not in ignored} for f in (first, second)
    )
    assert left == right


@pytest.mark.slow
def test_two_processes_give_equal_bytes(tmp_path: Path) -> None:
    """Python orders sets of strings anew in every process, by PYTHONHASHSEED."""
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        words = "build -q -m elu --d-model 16 --heads 2 -n 8 --no-dynamic --no-check -o"
        subprocess.run(
            [sys.executable, "-m", "linattn_export", *words.split(), folder],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=False,
        )
        found.append(snapshot(folder / "layer"))
    assert found[0] == found[1]
    assert "elu/torchscript/n8/model.pt" in found[0]


def test_other_seeds_give_other_weights(tmp_path: Path) -> None:
    first, _ = small(tmp_path / "a", check=False, lengths=())
    second, _ = small(tmp_path / "b", check=False, lengths=(), seed=1)
    name = "layer/elu/onnx/dynamic/model.onnx"
    assert (first / name).read_bytes() != (second / name).read_bytes()


# Each takes seconds, and those that are not built by default half a minute. These two mask in
# their own ways: logits before a softmax over tokens, and weights that belong to positions.
@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=() if m == "softmax" else pytest.mark.slow) for m in METHODS],
)
def test_every_method_with_a_mask_in_every_format(method: str, tmp_path: Path) -> None:
    options = RANK_8 if method == "linformer" else {}
    lengths = () if METHODS[method].capabilities.causal else (16,)
    folder, report = small(
        tmp_path, methods=(method,), formats=(), mask=True, options=options, entries=("forward",),
        lengths=lengths,
    )  # fmt: skip
    assert report.exit_code is ExitCode.PASS, report.model_dump_json(indent=1)
    families = {c.family for a in report.artifacts for r in a.runtimes for c in r.cases}
    assert {"right-padding", "left-padding", "one-empty", "one-token"} <= families
    names = [item.name for item in session(folder, f"layer/{method}/onnx/dynamic").get_inputs()]
    assert names == ["hidden_states", "attention_mask"]


@pytest.mark.parametrize(
    "mask",
    [pytest.param(False, id="bare"), pytest.param(True, id="masked")],
)
@pytest.mark.slow
def test_the_bare_method_as_a_model(mask: bool, tmp_path: Path) -> None:
    folder, report = small(tmp_path, models=("attention",), formats=(), mask=mask)
    assert report.exit_code is ExitCode.PASS
    inputs = session(folder, "attention/elu/onnx/dynamic").get_inputs()
    wanted = ["query", "key", "value"] + ["attention_mask"] * mask
    assert [item.name for item in inputs] == wanted
    assert inputs[0].shape == ["batch", 2, "sequence", 8]


@pytest.mark.parametrize(
    ("method", "formats"),
    siblings([("elu", ("onnx",)), ("efficient", ()), ("taylor", ()), ("elu", ())]),
)
def test_half_precision(method: str, formats: tuple[str, ...], tmp_path: Path) -> None:
    folder, report = small(tmp_path, methods=(method,), formats=formats, dtype="fp16")
    assert report.exit_code is ExitCode.PASS, report.model_dump_json(indent=1)
    (value,) = session(folder, f"layer/{method}/onnx/dynamic-fp16").get_inputs()
    assert value.type == "tensor(float16)"


OPSETS = [
    pytest.param(opset, marks=[] if opset == 17 else pytest.mark.slow)
    for opset in range(17, 24)
    if opset != 18  # the default, in every other test
]


@pytest.mark.slow
@pytest.mark.parametrize("opset", OPSETS)
def test_the_opset_asked_for_is_the_opset_written(opset: int, tmp_path: Path) -> None:
    methods = ("softmax", "retention")  # between them every operator that a method needs
    folder, report = small(tmp_path, methods=methods, opset=opset, lengths=(), mask=True)
    assert report.exit_code is ExitCode.PASS
    for method in methods:
        model = onnx.load(folder / f"layer/{method}/onnx/dynamic/model.onnx")
        assert [item.version for item in model.opset_import] == [opset]


@pytest.mark.slow
def test_a_batch_of_one_and_fixed_batches(tmp_path: Path) -> None:
    for batch in ("1", "5", "1:2"):
        _, report = small(tmp_path / batch.replace(":", "_"), batch=batch, formats=())
        assert report.exit_code is ExitCode.PASS, batch


@pytest.mark.slow
def test_a_length_of_one(tmp_path: Path) -> None:
    _, report = small(tmp_path, lengths=(1,), dynamic="", formats=())
    assert report.exit_code is ExitCode.PASS


def test_weights_from_a_file(tmp_path: Path) -> None:
    torch.manual_seed(5)
    layer = MultiHeadAttention(16, 2, method="elu").eval()
    path = tmp_path / "weights.safetensors"
    save_file(layer.state_dict(), path)
    folder, _ = small(tmp_path, weights=path, lengths=())
    hidden = torch.randn(2, 9, 16)
    (output,) = session(folder, "layer/elu/onnx/dynamic").run(
        ["output"], {"hidden_states": hidden.numpy()}
    )
    np.testing.assert_allclose(output, layer(hidden).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_unchecked_is_unverified_and_says_so_in_the_file(tmp_path: Path) -> None:
    folder, report = small(tmp_path, check=False)
    assert report.exit_code is ExitCode.UNVERIFIED
    document = manifest.read(folder)
    assert document.verdict == "UNVERIFIED"
    assert document.artifacts[0].axis("sequence").verified is None
    model = onnx.load(folder / "layer/elu/onnx/dynamic/model.onnx")
    found = {item.key: item.value for item in model.metadata_props}
    assert found["linattn.verified_sequence"] == "none"


def test_a_build_replaces_the_folder_it_wrote_before(tmp_path: Path) -> None:
    few = {"check": False, "formats": ("torchscript",), "dynamic": ""}
    folder, _ = small(tmp_path, lengths=(8,), **few)
    small(tmp_path, lengths=(12,), **few)
    assert (folder / "layer/elu/torchscript/n12").is_dir()
    assert not (folder / "layer/elu/torchscript/n8").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_verified_ranges_are_in_the_manifest(small_folder: Path) -> None:
    for artifact in manifest.read(small_folder).artifacts:
        for axis in artifact.axes:
            assert axis.verified == axis.declared
            assert axis.verified is not None


def test_the_command_in_the_manifest_has_no_path(small_folder: Path) -> None:
    command = manifest.read(small_folder).command or []
    assert command[:2] == ["linattn-export", "build"]
    assert not [word for word in command if "/" in word]
    request = BuildRequest(weights=Path("some/folder/w.safetensors"), dynamic="", lengths=())
    assert "w.safetensors" in command_of(request)


def test_the_users_state_of_torch_is_left_as_it_was(tmp_path: Path) -> None:
    before = torch.is_grad_enabled(), torch.get_default_dtype()
    numbers = torch.random.get_rng_state()
    small(tmp_path, check=False, lengths=())
    assert (torch.is_grad_enabled(), torch.get_default_dtype()) == before
    assert torch.equal(torch.random.get_rng_state(), numbers)


@pytest.mark.slow
def test_digits_reports_accuracy_beside_the_verdict(tmp_path: Path) -> None:
    folder, report = small(
        tmp_path,
        models=("digits",),
        formats=(),
        lengths=None,
        dynamic=None,
        batch="1:64",
        d_model=None,
        heads=None,
    )
    assert report.exit_code is ExitCode.PASS, report.model_dump_json(indent=1)
    assert MODELS["digits"].task is not None
    for artifact in report.artifacts:
        for runtime in artifact.runtimes:
            assert runtime.task is not None
            assert runtime.task.samples == 360
            assert runtime.task.score == runtime.task.reference_score >= 0.95
    assert "Task on held-out data" in (folder / "report.md").read_text()
