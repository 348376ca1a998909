"""Outputs that are no value of their own: inputs, weights, views, and the same tensor twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from linattn_export.build.from_python import export_module
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.live_module.borrow import borrowed
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_runtime_checks.contract.errors import ExitCode

SPEC: dict[str, Any] = {
    "inputs": {"x": {"shape": ["batch", 4, 8]}},
    "symbols": {"batch": "1:4"},
}


class Net(nn.Module):
    def __init__(self, function: Callable[["Net", Tensor], Any]) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.gain = nn.Parameter(torch.randn(8))
        self.register_buffer("table", torch.randn(3, 8))
        self.dropout = nn.Dropout(0.5)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def one_twice(net: Net, x: Tensor) -> dict[str, Tensor]:
    found = net.mix(x)
    return {"last": found, "hidden": found}


def one_twice_and_the_input(net: Net, x: Tensor) -> dict[str, Tensor]:
    return one_twice(net, x) | {"x": x}


RETURNED: dict[str, Callable[[Net, Tensor], Any]] = {
    "the input": lambda net, x: (net.mix(x), x),
    "the input alone": lambda net, x: x,
    "the input twice": lambda net, x: (x, net.mix(x), x),
    "one twice": one_twice,
    "one twice and the input": one_twice_and_the_input,
    "a weight": lambda net, x: (net.mix(x), net.gain),
    "a weight twice": lambda net, x: (net.gain, net.gain, net.mix(x)),
    "a buffer": lambda net, x: (net.table, net.mix(x)),
    "a constant": lambda net, x: (net.mix(x), torch.ones(4)),
    "a view": lambda net, x: (net.mix(x), x.view(x.shape)),
    "detached": lambda net, x: (x.detach(), net.mix(x)),
    "contiguous": lambda net, x: (x.contiguous(), net.mix(x)),
    "dropped out": lambda net, x: (net.dropout(x), net.mix(x)),
    "plus zero": lambda net, x: x + 0,
    "a view of a result": lambda net, x: {"a": net.mix(x), "b": net.mix(x).view(x.shape)},
}


@pytest.mark.parametrize("name", RETURNED)
def test_names_and_values_are_as_promised(name: str, tmp_path: Path) -> None:
    with borrowed(Net(RETURNED[name]), torch.float32) as net:
        subject = make_subject(net, read_spec(SPEC), BuildRequest(), "net", "net")
        job = Job.of(subject, subject.variants[0], 18)
        path = tmp_path / "model.onnx"
        FORMATS["onnx"].write(job, path)
        model = onnx.load(path)
        assert [value.name for value in model.graph.input] == ["x"]
        names = [value.name for value in model.graph.output]
        assert names == list(subject.outputs)
        assert len(set(names)) == len(names)
        made = {output for node in model.graph.node for output in node.output}
        assert set(names) <= made, "ONNX wants an output to be the output of a node"
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        x = torch.randn(3, 4, 8)
        expected = subject.entry()(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for found, wanted in zip(session.run(None, {"x": x.numpy()}), expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(found), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one twice and the input", "a weight"])
def test_every_format_passes(name: str, tmp_path: Path) -> None:
    report = export_module(Net(RETURNED[name]), SPEC, tmp_path / "out", latency=False, quiet=True)
    assert report.exit_code is ExitCode.PASS
    formats = {result.format for result in report.artifacts}
    assert {"onnx", "pt2"} <= formats


def test_gradient_flags_come_back() -> None:
    net = Net(RETURNED["a weight"])
    net.mix.weight.requires_grad_(False)
    before = {name: p.requires_grad for name, p in net.named_parameters()}
    with borrowed(net, torch.float32) as lent:
        assert not any(p.requires_grad for p in lent.parameters())
    assert {name: p.requires_grad for name, p in net.named_parameters()} == before
