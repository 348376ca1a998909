"""Translation to ONNX changes no number: each constant arrives, whatever it is near to."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor, nn

from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject

WIDTH = 4


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def written(module: nn.Module, path: Path, dtype: str = "fp32") -> onnx.ModelProto:
    spec = {
        "inputs": {"x": {"shape": ["batch", WIDTH]}},
        "symbols": {"batch": "1:64"},
    }
    subject = make_subject(module.eval(), read_spec(spec), BuildRequest(dtype=dtype), "net", "net")
    job = Job.of(subject, subject.variants[0], 18)
    FORMATS["onnx"].write(job, path / "model.onnx")
    return onnx.load(path / "model.onnx")


def run(model: onnx.ModelProto, x: Tensor) -> NDArray[np.float32]:
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), settings, ["CPUExecutionProvider"])
    found: list[NDArray[np.float32]] = session.run(None, {"x": x.numpy()})
    return found[0]


def numbers(model: onnx.ModelProto) -> list[bytes]:
    """Every floating-point scalar of a file, as bytes of float32."""
    arrays = [numpy_helper.to_array(item) for item in model.graph.initializer]
    for node in model.graph.node:
        arrays += [numpy_helper.to_array(a.t) for a in node.attribute if a.HasField("t")]
    return [
        np.float32(number).tobytes() for x in arrays if x.dtype.kind == "f" for number in x.flat
    ]


ALMOST_ONE = 1 + 2**-23
SMALL = {
    "added": (lambda x: x.relu() + 1e-8, [1e-8]),
    "added on the left": (lambda x: 1e-9 + x.relu(), [1e-9]),
    "taken away": (lambda x: x.relu() - 1e-9, [1e-9]),
    "factor": (lambda x: x * ALMOST_ONE, [ALMOST_ONE]),
    "divisor": (lambda x: x / (1 - 2**-24), [1 - 2**-24]),
    "power": (lambda x: x.abs() ** (1 + 1e-6), [1 + 1e-6]),
    "least": (lambda x: x.relu().clamp(min=1e-12), [1e-12]),
    "maximum": (lambda x: torch.maximum(x.relu(), torch.tensor(1e-10)), [1e-10]),
    "tensor": (lambda x: x + torch.tensor([1e-9, 0.0, -1e-9, 1e-8]), [1e-9, -1e-9, 1e-8]),
    "inside where": (lambda x: torch.where(x > 0, x, 1e-8), [1e-8]),
    "two that are close": (lambda x: (x.relu() + 1e-6) / (x.abs() + 1.001e-6), [1e-6, 1.001e-6]),
    "denormal": (lambda x: x.relu() + 1e-42, [1e-42]),
    "minus zero": (lambda x: 1 / (x.relu() * 0.0 + 0.0), []),
    "normalised": (lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-8), [1e-8]),
    "logarithm": (lambda x: (x.softmax(-1) * 0 + 1e-9).log(), [1e-9]),
    "square root": (lambda x: torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-12), [1e-12]),
}
BOUNDS: dict[str, Callable[[Tensor], Tensor]] = {
    "bounds that exclude each other": lambda x: x.clamp(0, 1).clamp(2, 3),
    "positive after bounds below": lambda x: x.clamp(-3, -1).relu(),
    "bounds the other way round": lambda x: x.clamp(2, 3).clamp(0, 1),
    "least above most": lambda x: x.clamp(2, 1),
    "plain": lambda x: x.relu().clamp(max=1).clamp(min=0.5),
    "twice positive": lambda x: x.relu().relu(),
}
EDGES = torch.tensor(
    [[0.0, 0, 0, 0], [-1, -2, -3, -4], [1, 0, -1, 2], [1e-8, 1e-12, -1e-9, 0], [-0.0, 1, 100, 3e4]]
)


@pytest.mark.parametrize("name", SMALL)
def test_a_number_near_a_neutral_one_arrives(name: str, tmp_path: Path) -> None:
    function, wanted = SMALL[name]
    module = Function(function)
    model = written(module, tmp_path)
    held = numbers(model)
    for number in wanted:
        assert np.float32(number).tobytes() in held, f"{number} is not in the file"
    expected = module(EDGES).numpy()
    np.testing.assert_allclose(run(model, EDGES), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_not_merged_into_others(name: str, tmp_path: Path) -> None:
    model = written(Function(BOUNDS[name]), tmp_path)
    np.testing.assert_array_equal(run(model, EDGES), BOUNDS[name](EDGES).numpy())


@pytest.mark.parametrize("name", ["added", "least", "tensor"])
def test_half_precision_keeps_what_it_can_hold(name: str, tmp_path: Path) -> None:
    functions = {
        "added": lambda x: x.relu() + 6e-8,
        "least": lambda x: x.relu().clamp(min=1e-7),
        "tensor": lambda x: x.relu() + torch.tensor([6e-8, 0, 0, 0], dtype=x.dtype),
    }
    model = written(Function(functions[name]), tmp_path, "fp16")
    x = EDGES[:3].half()
    np.testing.assert_array_equal(run(model, x), functions[name](x).numpy())


def test_what_is_exactly_neutral_goes(tmp_path: Path) -> None:
    model = written(Function(lambda x: ((x * 1) / 1 - 0.0).exp()), tmp_path)
    assert [node.op_type for node in model.graph.node] == ["Exp"]


class Normalised(nn.Module):
    """A convolution whose batch normalisation has statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm1d(3)
        for tensor in (self.norm.running_mean, self.norm.running_var):
            nn.init.uniform_(tensor, 0.5, 2)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(self.convolution(x.unsqueeze(1)))
        return found


def test_every_weight_arrives_bit_for_bit(tmp_path: Path) -> None:
    module = Normalised()
    model = written(module, tmp_path)
    held = {numpy_helper.to_array(item).tobytes() for item in model.graph.initializer}
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            assert tensor.numpy().tobytes() in held, name


@pytest.mark.parametrize(
    "function", [torch.log1p, torch.special.log1p, torch.expm1, nn.functional.logsigmoid],
    ids=["log1p", "special.log1p", "expm1", "logsigmoid"],
)  # fmt: skip
def test_functions_for_small_numbers_keep_their_digits(
    function: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    small = 10.0 ** torch.arange(-44, 0, dtype=torch.float64)
    large = torch.tensor([0.4999, 0.5001, 1.0, 3.0, 15.0, 30.0, 87.0, 1e3, 1e20])
    ends = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, -1.0, -0.9999])
    x = torch.cat([small, -small, large, -large, ends]).float()
    x = torch.cat([x, x.new_zeros(-len(x) % WIDTH)]).reshape(-1, WIDTH)
    got = run(written(Function(function), tmp_path), x).astype(np.float64)
    with np.errstate(over="ignore"):
        expected = function(x.double()).float().double().numpy()
    # A few roundings of single precision; below its smallest normal number, of that one.
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1.2e-38 * 1e-6)
