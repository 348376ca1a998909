"""Sums over tokens: what single precision costs where they are taken in order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import own_nets
from linattn_export import export_module
from linattn_export.formats import onnx_graph
from linattn_export.formats.base import Job
from linattn_export.golden.plain_sums import PlainSums
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.verdict import compare
from own_specs import SPEC

LONG = SPEC | {"symbols": {"batch": "1:2", "sequence": "1:4096"}}


@pytest.mark.parametrize(
    "reduce",
    [
        lambda x: x.sum(1),
        lambda x: x.sum((0, 2), keepdim=True),
        lambda x: x.sum(),
        lambda x: x.mean(-1),
        lambda x: x.mean((1, 2), keepdim=True),
        lambda x: x.cumsum(1),
    ],
)
def test_they_are_the_same_sums(reduce: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 7, 5)
    with PlainSums():  # type: ignore[no-untyped-call]
        found = reduce(x)
        kept = reduce(x.double())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, reduce(x), rtol=1e-5, atol=1e-6)
    assert torch.equal(kept, reduce(x.double())), "float64 is left alone"


def test_they_lose_more_over_many_tokens() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 4096, 64)
    truth = x.double().mean(1)
    with PlainSums():  # type: ignore[no-untyped-call]
        plain = x.mean(1)
    lost = [torch.linalg.norm(y.double() - truth).item() for y in (x.mean(1), plain)]
    assert 3 * lost[0] < lost[1] < 1e-5


def test_a_mean_over_4096_tokens_passes(tmp_path: Path) -> None:
    """ONNX Runtime adds in order: 8 to 14 times what it costs PyTorch's own sum."""
    report = export_module(
        own_nets.Pooled(), LONG, tmp_path / "out", formats=["onnx"], quiet=True, latency=False
    )
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    assert report.artifacts[0].verified_sequence == (1, 4096)


def test_a_hundred_thousandth_off_is_still_seen(tmp_path: Path) -> None:
    """What sums in order cost is no excuse for more, at any length."""
    folder = tmp_path / "out"
    export_module(own_nets.Pooled(), LONG, folder, formats=["onnx"], quiet=True, check=False)
    with open_reference(folder / "pooled/own/reference.safetensors") as reference:
        cases = [case for case in reference.index.cases if case.family == "normal"]
        assert max(case.sequence for case in cases) == 4096
        for case in cases:
            for name, truth in reference.outputs(case).items():
                wrong = (truth * (1 + 1e-5)).astype("float32")
                assert not compare(wrong, truth, "float32", case.yardstick(name)).passed, case.name


def test_another_reduction_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translate = onnx_graph._translate

    def swapped(job: Job) -> Any:
        model = translate(job)
        for node in model.graph:
            if node.op_type == "ReduceMean":
                node.op_type = "ReduceMax"
        return model

    monkeypatch.setattr(onnx_graph, "_translate", swapped)
    report = export_module(
        own_nets.Pooled(), LONG, tmp_path / "out", formats=["onnx"], quiet=True, latency=False
    )
    assert Code.PARITY_EXCEEDED in {finding.code for finding in report.all_findings()}
