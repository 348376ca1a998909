"""torch.cond and its like: a file that passes, or a refusal that names operator and line."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from linattn_export.build.from_python import export_module
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.golden.plain_sums import PlainSums
from linattn_export.live_module.switches import under
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_runtime_checks.contract.errors import ExitCode, ExportError
from linattn_runtime_checks.contract.manifest import read
from siblings import siblings

SPEC: dict[str, Any] = {
    "inputs": {"x": {"shape": ["batch", "sequence", 8]}},
    "symbols": {"batch": "1:4", "sequence": "1:16"},
}


class ByLength(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        long = torch.tensor(x.size(1)) > 9
        found: Tensor = torch.cond(long, lambda x: self.one(x), lambda x: self.other(x), (x,))
        return found


class ByValue(nn.Module):
    def forward(self, x: Tensor, switch: Tensor) -> Tensor:
        found: Tensor = torch.cond(
            switch.sum() > 0, lambda x: x.cumsum(1), lambda x: x.flip(1), (x,)
        )
        return found


class Loop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        _, found = while_loop(  # type: ignore[no-untyped-call]
            lambda i, y: i < 5, lambda i, y: (i + 1, y * 0.5 + 1), (torch.tensor(0), x)
        )
        kept: Tensor = found
        return kept


def cumulative(row: Tensor, *_: Any) -> Tensor:
    return row.cumsum(0)


class Mapped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = map_(cumulative, x)
        return found


class Flexible(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        query = x.unsqueeze(1)
        found: Tensor = flex_attention(query, query, query).squeeze(1)
        return found


def job_of(module: nn.Module, spec: dict[str, Any]) -> Job:
    subject = make_subject(module.eval(), read_spec(spec), BuildRequest(), "net", "net")
    return Job.of(subject, subject.variants[0], 18)


@pytest.mark.slow
def test_a_condition_on_a_length_passes_the_gate(tmp_path: Path) -> None:
    report = export_module(ByLength(), SPEC, tmp_path / "out", latency=False, quiet=True)
    assert report.exit_code is ExitCode.PASS
    assert {one.format for one in report.artifacts} == {"onnx", "pt2"}
    (why,) = read(tmp_path / "out").not_made.values()
    assert "cannot be scripted" in why
    model = onnx.load(next((tmp_path / "out").rglob("model.onnx")))
    assert "If" in [node.op_type for node in model.graph.node]


def test_a_condition_on_a_value_becomes_an_if(tmp_path: Path) -> None:
    spec = SPEC | {"inputs": SPEC["inputs"] | {"switch": {"shape": [1]}}}
    module = ByValue()
    FORMATS["onnx"].write(job_of(module, spec), tmp_path / "model.onnx")
    session = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    x = torch.randn(2, 7, 8)
    for switch, wanted in ((1.0, x.cumsum(1)), (-1.0, x.flip(1))):
        feed = {"x": x.numpy(), "switch": np.array([switch], np.float32)}
        (found,) = session.run(None, feed)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_a_loop_becomes_a_loop(tmp_path: Path) -> None:
    FORMATS["onnx"].write(job_of(Loop(), SPEC), tmp_path / "model.onnx")
    session = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    x = torch.randn(2, 3, 8)
    (found,) = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(found, Loop()(x).numpy(), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("module", "operator", "line"),
    siblings(
        [
            (Mapped(), "map_impl", "map_(cumulative"),
            (Flexible(), "flex_attention", "flex_attention(q"),
        ]
    ),
)
def test_what_onnx_does_not_have_is_named_with_its_line(
    module: nn.Module, operator: str, line: str, tmp_path: Path
) -> None:
    job = job_of(module, SPEC)
    with pytest.raises(
        ExportError, match=f"ONNX has nothing for the operator {operator}"
    ) as caught:
        FORMATS["onnx"].write(job, tmp_path / "model.onnx")
    said = str(caught.value)
    for part in (line, Path(__file__).name, "is_exporting"):
        assert part in said


def test_a_failed_run_under_a_mode_does_not_spoil_the_next() -> None:
    module, x = ByLength().eval(), torch.randn(2, 12, 8)
    with torch.no_grad():
        assert under(PlainSums(), lambda: module(x)) is None  # type: ignore[no-untyped-call]
        torch.testing.assert_close(module(x), module.one(x))
        assert under(PlainSums(), lambda: x + 1) is not None  # type: ignore[no-untyped-call]
        with pytest.raises(ZeroDivisionError):
            under(PlainSums(), lambda: 1 // 0)  # type: ignore[no-untyped-call]
