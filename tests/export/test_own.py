"""A module of one's own, from Python and from the command: written, judged, left as it was."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import own_nets
from linattn_export import export_module
from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject, safe_name
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode, UsageError
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.manifest import Artifact, read
from linattn_runtime_checks.judging.folder import CheckRequest, check_folder
from linattn_runtime_checks.judging.live import live_packs
from linattn_runtime_checks.results.report import Report
from own_specs import PAIR, SPEC, TOKENS


def exported(module: nn.Module, spec: Any, folder: Path, **options: Any) -> Report:
    torch.manual_seed(3)
    return export_module(module, spec, folder, quiet=True, latency=False, **options)


def only_artifact(folder: Path) -> Artifact:
    (artifact,) = read(folder).artifacts
    return artifact


def codes(report: Report) -> set[Code]:
    return {f.code for f in report.all_findings() if f.exit_code is not ExitCode.PASS}


def checks(report: Report) -> set[str]:
    return {check.name for a in report.artifacts for r in a.runtimes for check in r.checks}


def test_every_format_passes_and_the_module_is_as_it_was(tmp_path: Path) -> None:
    module = own_nets.Net()
    module.train()
    module.blocks[1].eval()
    module.head.weight.requires_grad_(False)
    before = copy.deepcopy(module)
    report = exported(module, TOKENS, tmp_path / "out")
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    assert {a.id for a in report.artifacts} == {
        f"net/own/{kind}/dynamic" for kind in ("onnx", "torchscript", "pt2")
    }
    assert {"padding", "alone", "deterministic", "finite", "cost"} <= checks(report)
    assert [part.training for part in module.modules()] == [p.training for p in before.modules()]
    for one, other in zip(module.parameters(), before.parameters(), strict=True):
        assert one.requires_grad == other.requires_grad
        assert torch.equal(one, other)
    artifact = read(tmp_path / "out").artifacts[0]
    assert [(spec.name, spec.axes) for spec in artifact.outputs] == [
        ("logits", ["batch", 5]),
        ("hidden", ["batch", "sequence", 16]),
    ]
    assert artifact.config == {"module": "Net"}
    assert artifact.axis("sequence").verified == (1, 70)


def test_a_format_that_cannot_be_made_is_a_partial_result(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    report = exported(own_nets.Structured(), PAIR, folder)
    assert report.exit_code is ExitCode.PASS
    ((place, reason),) = report.not_made.items()
    assert place == "structured/own/torchscript/dynamic"
    assert "cannot be scripted" in reason
    assert not (folder / place).exists()
    again = check_folder(folder, read(folder), CheckRequest(latency=False, quiet=True))
    assert again.not_made == report.not_made
    model = onnx.load(folder / "structured/own/onnx/dynamic/model.onnx")
    names = [item.name for item in model.graph.input]
    assert names == ["left", "right", "scale"]
    assert "could not be made" in (folder / "report.md").read_text()


def test_the_batch_may_be_another_axis_than_the_first(tmp_path: Path) -> None:
    spec = SPEC | {
        "inputs": {"x": {"shape": ["sequence", "batch", 8]}},
        "promises": {"causal": True},
    }
    folder = tmp_path / "out"
    report = exported(own_nets.SequenceFirst(), spec, folder, formats=["onnx"])
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    assert {"causal", "alone"} <= checks(report)
    with open_reference(folder / only_artifact(folder).reference) as reference:
        for case in reference.index.cases:
            assert reference.inputs(case)["x"].shape == (case.sequence, case.batch, 8)
            assert reference.outputs(case)["output"].shape == (case.sequence, case.batch, 8)


def test_a_size_inside_may_be_one(tmp_path: Path) -> None:
    report = exported(own_nets.Segments(), SPEC, tmp_path / "out", formats=["onnx"])
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    assert report.artifacts[0].verified_sequence == (1, 60)


def test_a_mask_that_leaks_is_found(tmp_path: Path) -> None:
    mask = {"mask": {"kind": "mask", "shape": ["batch", "sequence"], "dtype": "int64"}}
    spec = SPEC | {"inputs": SPEC["inputs"] | mask}
    report = exported(own_nets.MaskOnValuesOnly(), spec, tmp_path / "out", formats=["onnx"])
    assert Code.PADDING_LEAKS in codes(report)


def test_a_promise_that_is_broken_is_found(tmp_path: Path) -> None:
    spec = SPEC | {"promises": {"causal": True}}
    report = exported(own_nets.Future(), spec, tmp_path / "out", formats=["onnx"])
    assert codes(report) == {Code.FUTURE_LEAKS}


def test_no_sequence_and_a_fixed_batch(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    spec = {"symbols": {"batch": 3}, "inputs": {"image": {"shape": ["batch", 3, 16, 16]}}}
    report = exported(own_nets.Image(), spec, folder, formats=["onnx"])
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    artifact = only_artifact(folder)
    assert artifact.inputs[0].shape == [3, 3, 16, 16]
    assert artifact.axis("batch").verified == (3, 3)


def test_the_reference_is_in_float64_whatever_the_code_says() -> None:
    module = own_nets.SinglePrecision().eval()
    subject = make_subject(module, read_spec(SPEC), BuildRequest(), "x", "x")
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        found = subject.double()(x.double())
        wide = copy.deepcopy(module).double()
        expected = wide.mix(x.double() - x.double().mean(-1, keepdim=True))
    assert found.dtype == torch.float64
    assert torch.equal(found, expected)
    assert subject.fixes_dtype
    plain = make_subject(own_nets.Plain(), read_spec(SPEC), BuildRequest(), "x", "x")
    assert not plain.fixes_dtype


@pytest.mark.parametrize("casts", [True, False])
def test_a_tensor_that_the_module_makes_and_fills_is_in_the_reference(
    casts: bool, tmp_path: Path
) -> None:
    """It stayed zero in float64, and a right file was accused."""
    report = exported(own_nets.FillsZeros(casts), SPEC, tmp_path / "out", formats=["onnx"])
    assert report.exit_code is ExitCode.PASS, report.all_findings()


def test_real_inputs_fixed_lengths_and_weights_from_the_command(tmp_path: Path) -> None:
    torch.manual_seed(5)
    weights = own_nets.SequenceFirst().state_dict()
    save_file(weights, tmp_path / "w.safetensors")
    save_file({"x": torch.randn(9, 11, 8)}, tmp_path / "real.safetensors")
    (tmp_path / "x.toml").write_text(
        '[symbols]\nbatch = "1:4"\nsequence = "1:30"\n'
        '[inputs.x]\nshape = ["sequence", "batch", 8]\nsamples = "real.safetensors"\n'
    )
    folder = tmp_path / "out"
    request = BuildRequest(
        output=folder,
        module="own_nets:SequenceFirst",
        inputs=tmp_path / "x.toml",
        weights=tmp_path / "w.safetensors",
        lengths=(12,),
        latency=False,
        quiet=True,
    )
    report = build(request)
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    assert {a.variant for a in report.artifacts} == {"dynamic", "n12"}
    manifest = read(folder)
    command = " ".join(manifest.command or [])
    assert "--module own_nets:SequenceFirst --inputs x.toml" in command
    with open_reference(folder / manifest.artifacts[0].reference) as reference:
        (case,) = [case for case in reference.index.cases if case.family == "samples"]
        assert (case.batch, case.sequence) == (4, 9)
        x, found = reference.inputs(case)["x"], reference.outputs(case)["output"]
        mixed = x.astype("float64") @ weights["mix.weight"].double().numpy().T
        expected = np.tanh(mixed + weights["mix.bias"].double().numpy()).cumsum(0)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    with (
        pytest.raises(UsageError, match="module of one's own"),
        live_packs(folder, manifest, 1, quiet=True),
    ):
        pass


def test_half_precision_is_a_copy(tmp_path: Path) -> None:
    module = own_nets.Plain()
    module.mix = nn.Linear(8, 8)
    folder = tmp_path / "out"
    report = exported(module, SPEC, folder, formats=["onnx"], dtype="fp16")
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    assert module.mix.weight.dtype == torch.float32
    assert only_artifact(folder).inputs[0].dtype == "float16"


def test_names_are_folders_everywhere() -> None:
    assert safe_name("MyNet") == "my_net"
    assert safe_name("make.<locals>.Net v2") == "make_locals_net_v2"
    assert safe_name("...") == "module"


@pytest.mark.slow
def test_a_causal_method_inside_walks_over_any_number_of_chunks(tmp_path: Path) -> None:
    spec = {
        "symbols": {"batch": "1:4", "sequence": "1:300"},
        "inputs": {"tokens": {"dtype": "int64", "shape": ["batch", "sequence"], "range": [0, 31]}},
        "promises": {"causal": True, "cost": "linear"},
    }
    for method in ("retention", "causal_elu"):
        module = own_nets.Decoder(method)
        report = exported(module, spec, tmp_path / method, formats=["onnx", "pt2"])
        assert report.exit_code is ExitCode.PASS, report.all_findings()


@pytest.mark.slow
def test_a_recurrent_layer_inside_can_be_one_node(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        '[symbols]\nbatch = "1:4"\nsequence = "1:300"\n'
        '[inputs.tokens]\ndtype = "int64"\nshape = ["batch", "sequence"]\nrange = [0, 31]\n'
        "[promises]\ncausal = true\n"
    )
    request = BuildRequest(
        output=tmp_path / "out",
        module="own_nets:Decoder",
        inputs=tmp_path / "x.toml",
        onnx_forms=("portable", "ms"),
        latency=False,
        quiet=True,
    )
    report = build(request)
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    assert {a.id for a in report.artifacts} == {
        "decoder/own/onnx/dynamic",
        "decoder/own/onnx/dynamic-ms",
        "decoder/own/torchscript/dynamic",
        "decoder/own/pt2/dynamic",
    }
    assert "causal" in checks(report)


@pytest.mark.slow
def test_what_promises_linear_cost_and_is_quadratic_is_found(tmp_path: Path) -> None:
    spec = {
        "symbols": {"batch": "1:4", "sequence": "1:300"},
        "inputs": {"x": {"shape": ["batch", "sequence", own_nets.WIDTH]}},
    }
    module = own_nets.TorchEncoder()
    report = exported(module, spec, tmp_path / "out", formats=["onnx"])
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    promised = spec | {"promises": {"cost": "linear"}}
    report = exported(module, promised, tmp_path / "out", formats=["onnx"])
    assert codes(report) == {Code.QUADRATIC_COST}
