"""The cost of what was built, and of programs of torch.export, certified from their graphs."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from cost_graphs import WIDTH, artifact_of
from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract import manifest
from linattn_runtime_checks.cost.certificate import CostCertificate
from linattn_runtime_checks.cost.graph import certify_onnx, certify_program


def certificates(folder: Path) -> dict[tuple[str, str, str], CostCertificate]:
    """``(method, variant, kind of graph)`` to the certificate, of every artifact that has one."""
    found = {}
    for artifact in manifest.read(folder).artifacts:
        path, key = folder / artifact.path, (artifact.method, artifact.variant)
        if artifact.format == "onnx":
            found[*key, "onnx"] = certify_onnx(path, artifact)
            found[*key, "optimised"] = certify_onnx(path, artifact, optimized=True)
        elif artifact.format == "pt2":
            found[*key, "pt2"] = certify_program(torch.export.load(path), artifact)
    return found


def test_what_was_built_is_certified(small_folder: Path) -> None:
    found = certificates(small_folder)
    assert len(found) == 2 * 2 * 3
    for (method, variant, graph), certificate in found.items():
        # Heads of 16 channels, and 16 tokens.
        expected = "linear" if variant == "dynamic" else "unknown"
        assert certificate.kind == expected, (method, variant, graph, certificate)
        if variant == "dynamic":
            assert certificate.largest[0].shape == ["batch", "sequence", 32]


def test_softmax_is_quadratic_in_every_graph(tmp_path: Path) -> None:
    request = BuildRequest(
        output=tmp_path / "out",
        methods=("softmax",),
        formats=("onnx", "pt2"),
        lengths=(24,),
        dynamic="1:64",
        batch="1:4",
        mask=True,
        d_model=32,
        heads=2,
        check=False,
        latency=False,
        quiet=True,
    )
    build(request)
    found = certificates(tmp_path / "out")
    assert len(found) == 2 * 3
    for key, certificate in found.items():
        assert certificate.kind == "quadratic", key
        ops = {tensor.op.removeprefix("aten.").lower() for tensor in certificate.quadratic}
        assert any("matmul" in op for op in ops), key
        assert any("softmax" in op for op in ops), key
        assert all(tensor.node for tensor in certificate.quadratic), key


class Fused(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


class Halved(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pairs = nn.functional.avg_pool1d(k.transpose(1, 2), 2)
        return q + v.sum(1, keepdim=True) * pairs.sum(-1).unsqueeze(1)


class Scanned(nn.Module):
    """A scan over the tokens, whose state may be as long as the sequence: then it costs N^2."""

    def __init__(self, *, grows: bool) -> None:
        super().__init__()
        self.grows = grows

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def turn(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return state + (x.unsqueeze(1) if self.grows else x), x.clone()

        outputs: Tensor
        _, outputs = scan(turn, k.clone() if self.grows else k[:, 0].clone(), q.transpose(0, 1))
        return outputs.transpose(0, 1) + v


class Chosen(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q + v * k[k > 0].sum()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Fused(), "scaled_dot_product_attention"),
        (Chosen(), "no polynomial of the length"),
        (Scanned(grows=True), "in its body, which may grow"),
    ],
)
def test_a_program_that_does_not_show_its_cost_is_unknown(module: nn.Module, reason: str) -> None:
    axes = {0: torch.export.Dim("b", max=8), 1: torch.export.Dim("n", min=4, max=4096)}
    inputs = tuple(torch.randn(3, 24, WIDTH) for _ in "qkv")
    with torch.no_grad():
        program = torch.export.export(module, inputs, dynamic_shapes=(axes, axes, axes))
    found = certify_program(program, artifact_of((4, 4096)))
    assert found.kind == "unknown"
    assert reason in found.note
    static = torch.export.export(module, inputs)
    assert "the program has none that varies" in certify_program(static, artifact_of()).note


def test_a_scan_whose_turns_are_alike_is_linear() -> None:
    axes = {0: torch.export.Dim("b", max=8), 1: torch.export.Dim("n", min=4, max=4096)}
    inputs = tuple(torch.randn(3, 24, WIDTH) for _ in "qkv")
    with torch.no_grad():
        program = torch.export.export(
            Scanned(grows=False), inputs, dynamic_shapes=(axes, axes, axes)
        )
    found = certify_program(program, artifact_of((4, 4096)))
    assert (found.kind, found.note) == ("linear", "")
