"""Each fault is planted in what is exported, and must be seen."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from linattn import METHODS
from linattn.methods.elu import EluAttention
from linattn.methods.softmax import SoftmaxAttention
from linattn.methods.taylor import TaylorAttention
from linattn_export.build.pipeline import build
from linattn_export.formats.onnx_graph import FORMAT as ONNX
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.subject import Subject
from linattn_models import MODELS
from linattn_runtime_checks.contract.errors import ExitCode, ExportError
from linattn_runtime_checks.results.report import Report
from planting import Forward, elu, normaliser_dropped, phi, plant
from siblings import siblings


def report_of(tmp_path: Path, method: str, *, mask: bool = False, dynamic: str = "1:300") -> Report:
    return build(
        BuildRequest(
            output=tmp_path / "out",
            methods=(method,),
            models=("attention",),
            formats=("onnx",),
            lengths=(),
            dynamic=dynamic,
            batch="1:4",
            mask=mask,
            d_model=32,
            heads=2,
            latency=False,
            shrink=False,
            quiet=True,
        )
    )


def codes(report: Report) -> set[str]:
    findings = [f for a in report.artifacts for r in a.runtimes for f in r.findings]
    findings += [f for a in report.artifacts for f in a.findings]
    return {finding.code for finding in findings}


def query_ignored(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return elu(torch.zeros_like(q), k, v)


def normaliser_off_by_a_ten_thousandth(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return elu(q, k, v, scale=1.0001)


def scale_missing(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


def softmax_over_queries(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * q.size(-1) ** -0.5, -2) @ v


def count_frozen(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    numerator = v.sum(-2, keepdim=True) + q @ (k.transpose(-1, -2) @ v)
    return numerator / (24 + q @ k.sum(-2).unsqueeze(-1))


def bfloat16_products(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return elu(q.bfloat16().float(), k.bfloat16().float(), v.bfloat16().float())


def nan_for_large_inputs(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    y = elu(q, k, v)
    return torch.where(q.amax(-1, keepdim=True) > 60, torch.nan, y)


@pytest.mark.parametrize(
    ("module", "method", "forward"),
    siblings(
        [
            (EluAttention, "elu", normaliser_off_by_a_ten_thousandth),
            (SoftmaxAttention, "softmax", scale_missing),
            (TaylorAttention, "taylor", count_frozen),
            (EluAttention, "elu", query_ignored),
            (EluAttention, "elu", normaliser_dropped),
            (SoftmaxAttention, "softmax", softmax_over_queries),
            (EluAttention, "elu", bfloat16_products),
        ],
        quick=3,
    ),
    ids=lambda value: value.__name__ if callable(value) and not isinstance(value, type) else "",
)
def test_wrong_mathematics_is_a_parity_failure(
    module: type[nn.Module],
    method: str,
    forward: Forward,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    plant(monkeypatch, module, forward)
    report = report_of(tmp_path, method)
    assert report.exit_code is ExitCode.PARITY
    assert "parity_exceeded" in codes(report)
    assert report.artifacts[0].verified_sequence is None


def test_nan_on_one_side_is_a_parity_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, EluAttention, nan_for_large_inputs)  # only the family scale=30 is so large
    assert "nonfinite_mismatch" in codes(report_of(tmp_path, "elu"))


def mask_on_values_only(self: nn.Module, q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return elu(q, k, v.masked_fill(~m[:, None, :, None], 0.0))


def mask_off_by_one(self: nn.Module, q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    column = torch.roll(m, 1, dims=1)[:, None, :, None]
    k = phi(k).masked_fill(~column, 0.0)
    v = v.masked_fill(~column, 0.0)
    return phi(q) @ (k.transpose(-1, -2) @ v) / (phi(q) @ k.sum(-2).unsqueeze(-1) + 1e-6)


def mask_ignored(self: nn.Module, q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return elu(q, k, v) + 0.0 * m[:, None, :, None].to(q.dtype)


@pytest.mark.parametrize("forward", siblings([mask_on_values_only, mask_off_by_one, mask_ignored]))
def test_a_leaking_mask_is_a_parity_failure(
    forward: Forward, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, EluAttention, forward)
    report = report_of(tmp_path, "elu", mask=True, dynamic="1:64")
    assert report.exit_code is ExitCode.PARITY
    found = codes(report)
    assert found & {"parity_exceeded", "zero_row_not_zero"}


def length_specialised(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return elu(q, k, v) / float(k.shape[-2])


def loop_over_tokens(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    total = torch.zeros_like(q[..., :1, :])
    for i in range(k.shape[-2]):
        total = total + k[..., i : i + 1, :] * v[..., i : i + 1, :]
    return q * total


@pytest.mark.parametrize("forward", [length_specialised, loop_over_tokens])
def test_an_axis_that_cannot_stay_dynamic_is_an_export_error(
    forward: Forward, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, EluAttention, forward)
    with pytest.raises(ExportError, match=r"attention/elu cannot be captured as dynamic.*sequence"):
        report_of(tmp_path, "elu")
    assert not (tmp_path / "out").exists()


def test_a_file_whose_axis_became_static_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The exporter hands back a static graph: the file that was read back shows it."""
    import onnx_ir as ir

    from linattn_export.formats import onnx_graph

    real = onnx_graph._translate

    def static(job: object) -> object:
        model = real(job)  # type: ignore[arg-type]
        for value in [*model.graph.inputs, *model.graph.outputs]:
            value.shape = ir.Shape([value.shape[0], value.shape[1], 24, value.shape[3]])
        return model

    monkeypatch.setattr(onnx_graph, "_translate", static)
    with pytest.raises(ExportError, match=r"were asked for as .*sequence.*, the file has .*24"):
        report_of(tmp_path, "elu")


def test_a_fixed_file_that_takes_other_lengths_is_seen_where_it_is_all_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    layer = MODELS["layer"]
    unguarded = replace(layer, entry=lambda module, mask, length: layer.entry(module, mask, 0))
    monkeypatch.setitem(MODELS, "layer", unguarded)
    request = BuildRequest(
        output=tmp_path / "out",
        methods=("elu", "linformer"),
        formats=("torchscript",),
        lengths=(8,),
        dynamic="",
        batch="1:2",
        d_model=16,
        heads=2,
        options={"linformer": {"rank": 4, "max_length": 8}},
        latency=False,
        quiet=True,
    )
    report = build(request)
    elu, linformer = report.artifacts
    assert "length_not_refused" in {f.code for r in elu.runtimes for f in r.findings}
    assert linformer.exit_code is ExitCode.PARITY, "shorter ones: it refuses longer ones itself"


def test_training_mode_is_not_exported(tmp_path: Path) -> None:
    class Dropping(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.drop = nn.Dropout(0.5)

        def forward(self, hidden_states: Tensor) -> Tensor:
            output: Tensor = self.drop(self.inner(hidden_states))
            return output

    from linattn_export.formats.base import Job
    from linattn_export.subjects.making import make_subjects

    request = BuildRequest(methods=("elu",), lengths=(), dynamic="1:40", d_model=16, heads=2)
    (subject,) = make_subjects(request)
    noisy: Subject = replace(
        subject,
        model=replace(subject.model, entry=lambda module, mask, length: Dropping(module)),
    )
    written = ONNX.write(Job(subject=noisy, variant=noisy.variants[0], opset=18), tmp_path / "m")
    assert written.op_histogram is not None
    assert "Dropout" not in written.op_histogram


def test_there_is_a_method_for_every_module_that_faults_are_planted_in() -> None:
    modules = {METHODS[name].module for name in ("elu", "softmax", "taylor")}
    assert modules == {EluAttention, SoftmaxAttention, TaylorAttention}
