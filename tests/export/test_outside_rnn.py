"""Recurrent layers of PyTorch: one operator of ONNX for each layer, at any length."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from linattn_export.build.from_python import export_module
from linattn_export.capture.program import capture
from linattn_export.capture.recurrences import SIZES
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.errors import ExitCode, ExportError
from siblings import siblings

INPUT, HIDDEN = 5, 6


class Recurrent(nn.Module):
    """All that a recurrent layer returns, from zeros or from a state that follows the input."""

    def __init__(self, kind: Any, *, state: bool = False, **options: Any) -> None:
        super().__init__()
        self.layer = kind(INPUT, HIDDEN, **options)
        self.long = kind is nn.LSTM
        self.state = state
        self.along = 1 if self.layer.batch_first else 0
        self.copies = self.layer.num_layers * (2 if self.layer.bidirectional else 1)
        self.start = nn.Linear(INPUT, HIDDEN)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        if self.state:
            first = self.start(x.mean(self.along)).tanh().expand(self.copies, -1, -1).contiguous()
            found, last = self.layer(x, (first, first * 2) if self.long else first)
        else:
            found, last = self.layer(x)
        if self.long:
            return {"y": found, "hidden": last[0], "cell": last[1]}
        return {"y": found, "hidden": last}


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"batch_first": True},
    "sequence first": {},
    "both ways": {"batch_first": True, "bidirectional": True},
    "two layers both ways from a state": {
        "num_layers": 2,
        "bidirectional": True,
        "state": True,
    },
    "two layers without bias": {"batch_first": True, "num_layers": 2, "bias": False},
    "from a state": {"batch_first": True, "state": True},
}
CASES = [
    pytest.param(kind, options, id=f"{kind.__name__} {name}")
    for kind in (nn.GRU, nn.LSTM, nn.RNN)
    for name, options in OPTIONS.items()
] + [pytest.param(nn.RNN, {"batch_first": True, "nonlinearity": "relu"}, id="RNN relu")]


def subject_of(module: nn.Module, axes: list[Any]) -> Subject:
    spec = {
        "inputs": {"x": {"shape": axes}},
        "symbols": {"batch": "1:4", "sequence": "1:64"},
        "outputs": ["y"] if isinstance(module, Recurrent) else None,
    }
    spec = {key: value for key, value in spec.items() if value is not None}
    return make_subject(module.eval(), read_spec(spec), BuildRequest(), "net", "net")


def axes_of(options: dict[str, Any]) -> list[Any]:
    return (
        ["batch", "sequence", INPUT] if options.get("batch_first") else ["sequence", "batch", INPUT]
    )


@pytest.mark.parametrize(("kind", "options"), siblings(CASES, quick=7))
def test_a_layer_is_one_node_of_any_length(
    kind: type[nn.RNNBase], options: dict[str, Any], tmp_path: Path
) -> None:
    module = Recurrent(kind, **options)
    subject = subject_of(module, axes_of(options))
    job = Job.of(subject, subject.variants[0], 18)
    FORMATS["onnx"].write(job, tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    nodes = [node for node in model.graph.node if node.op_type == kind.__name__]
    assert len(nodes) == options.get("num_layers", 1)
    assert not [node for node in model.graph.node if node.op_type in ("Gather", "Loop", "Scan")]
    FORMATS["pt2"].write(job, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    session = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    for batch, length in ((1, 1), (4, 2), (3, 23), (2, 64)):
        sizes = (batch, length) if options.get("batch_first") else (length, batch)
        x = torch.randn(*sizes, INPUT)
        wanted = module(x)["y"]
        (found,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(loaded(x), wanted)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_every_number_of_the_weights_arrives(kind: type[nn.RNNBase], tmp_path: Path) -> None:
    module = Recurrent(kind, batch_first=True)
    subject = subject_of(module, axes_of({"batch_first": True}))
    FORMATS["onnx"].write(Job.of(subject, subject.variants[0], 18), tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    arrays = [numpy_helper.to_array(item).ravel() for item in model.graph.initializer]
    held = np.sort(np.concatenate([x for x in arrays if x.size > 1 and x.dtype == np.float32]))
    layer = [parameter.detach().numpy().ravel() for parameter in module.layer.parameters()]
    np.testing.assert_array_equal(held, np.sort(np.concatenate(layer)))


class Tagger(nn.Module):
    """Tokens in, their last states and their tags out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, INPUT)
        self.layer = nn.GRU(INPUT, HIDDEN, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * HIDDEN, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        found, _ = self.layer(self.embed(tokens))
        tags: Tensor = self.head(found)
        return tags.log_softmax(-1)


@pytest.mark.slow
def test_the_gate_passes_every_format(tmp_path: Path) -> None:
    spec = {
        "inputs": {"tokens": {"shape": ["batch", "sequence"], "dtype": "int64", "range": [0, 10]}},
        "symbols": {"batch": "1:4", "sequence": "1:32"},
    }
    report = export_module(Tagger(), spec, tmp_path / "out", latency=False, quiet=True)
    assert report.exit_code is ExitCode.PASS
    assert {one.format for one in report.artifacts} == {"onnx", "torchscript", "pt2"}


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(INPUT, HIDDEN, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x[..., 0] != 0).sum(1)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        found, _ = self.layer(packed)
        padded, _ = pad_packed_sequence(found, batch_first=True, total_length=x.size(1))
        return padded


def test_packed_sequences_are_refused_with_the_line() -> None:
    subject = subject_of(Packed(), axes_of({"batch_first": True}))
    with pytest.raises(ExportError, match="packed sequence") as caught:
        capture(subject.entry(), subject, subject.variants[0])
    assert "self.layer(packed)" in str(caught.value)
    assert "padded tensor" in str(caught.value)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_a_projection_is_refused_by_name(tmp_path: Path) -> None:
    module = Recurrent(nn.LSTM, batch_first=True, proj_size=3)
    subject = subject_of(module, axes_of({"batch_first": True}))
    job = Job.of(subject, subject.variants[0], 18)
    with pytest.raises(ExportError, match=r"proj_size at .*self\.layer") as caught:
        FORMATS["onnx"].write(job, tmp_path / "model.onnx")
    assert "Linear" in str(caught.value)
    FORMATS["pt2"].write(job, tmp_path / "model.pt2")


def test_nothing_of_the_capture_stays_behind() -> None:
    before = {operator: dict(operator.py_kernels) for operator in SIZES}
    subject = subject_of(Recurrent(nn.GRU, batch_first=True), axes_of({"batch_first": True}))
    capture(subject.entry(), subject, subject.variants[0])
    assert {operator: dict(operator.py_kernels) for operator in SIZES} == before
    x = torch.randn(2, 7, INPUT)
    assert nn.GRU(INPUT, HIDDEN)(x)[0].shape == (2, 7, HIDDEN)
