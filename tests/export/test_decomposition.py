"""The short way into ONNX gives torch's own graph, and leaves to torch what it cannot take."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.onnx._internal.exporter._fx_passes import insert_type_promotion_nodes

from linattn_export.formats import onnx_graph
from linattn_export.formats.base import Job
from linattn_export.formats.decomposition import as_traced, needs_none, promotes_nothing
from linattn_export.formats.onnx_graph import FORMAT, _registry
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from siblings import siblings


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def captured(function: Callable[[Tensor], Tensor]) -> ExportedProgram:
    shapes = {"x": {0: Dim("rows", min=1, max=64)}}
    return torch.export.export(Function(function), (torch.randn(3, 4),), dynamic_shapes=shapes)


def shape_of(path: Path) -> list[object]:
    """The graph without names of tensors: operators, attributes, who feeds whom, weights."""
    model = onnx.load(path)
    names: dict[str, object] = {"": None}
    for item in model.graph.initializer:
        names[item.name] = numpy_helper.to_array(item).tobytes()
    for place, value in enumerate(model.graph.input):
        names[value.name] = f"input {place}"
    found: list[object] = []
    for place, node in enumerate(model.graph.node):
        for index, name in enumerate(node.output):
            names[name] = (place, index)
        # A reshape and a view differ for a size of 0, which no axis declares.
        attributes = sorted(a.SerializeToString() for a in node.attribute if a.name != "allowzero")
        found.append((node.op_type, attributes, [names[name] for name in node.input]))
    return [*found, *(names[value.name] for value in model.graph.output)]


@pytest.mark.parametrize(
    ("method", "mask", "dtype"),
    siblings([("elu", True, "fp32"), ("linformer", False, "fp16"), ("efficient", True, "fp16")]),
)
def test_the_graph_is_the_one_of_torchs_own_way(
    method: str, mask: bool, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = BuildRequest(methods=(method,), mask=mask, dtype=dtype, d_model=32, heads=2)
    (subject,) = make_subjects(request)
    job = Job(subject=subject, variant=subject.variants[0], opset=18)
    before = str(job.program.graph)
    assert needs_none(job.program, _registry())
    FORMAT.write(job, tmp_path / "short.onnx")
    assert str(job.program.graph) == before, "other formats are written from it too"
    monkeypatch.setattr(onnx_graph, "needs_none", lambda program, table: False)
    monkeypatch.setattr(onnx_graph, "promotes_nothing", lambda module: False)
    FORMAT.write(job, tmp_path / "long.onnx")
    assert shape_of(tmp_path / "short.onnx") == shape_of(tmp_path / "long.onnx")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone().add_(1.0),
        lambda x: torch.ops.aten._native_batch_norm_legit(  # has a translation, and moves the mean
            x, None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5
        )[0],
        lambda x: torch.special.i1e(x),  # has no translation
        lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)),
    ],
    ids=["in place", "writes", "untranslated", "branch"],
)
def test_what_is_left_to_torch(function: Callable[[Tensor], Tensor]) -> None:
    assert not needs_none(captured(function), _registry())


def test_only_casts_that_change_the_dtype_are_kept() -> None:
    program = captured(lambda x: x.to(torch.float32).exp().to(torch.float16).to(torch.float16))
    assert needs_none(program, _registry())
    plain = as_traced(program)
    targets = [str(node.target) for node in plain.graph.nodes if node.op == "call_function"]
    kept = [target for target in targets if "_assert" not in target]
    assert kept == ["aten.exp.default", "aten._to_copy.default"]
    x = torch.randn(5, 4)
    assert torch.equal(plain.module()(x), program.module()(x))


@pytest.mark.parametrize(
    ("function", "nothing"),
    [
        (lambda x: torch.relu(x * x + 1.0), True),
        (lambda x: torch.where(x > 0.0, x, x.exp()), True),
        (lambda x: x + 1, False),  # an integer
        (lambda x: x + x.double(), False),
        (lambda x: x.half() * 0.5, False),
        (lambda x: x / x.size(0), False),  # a length
        (lambda x: torch.ones(4, dtype=torch.int64) / 2 + x, False),
    ],
)
def test_types_are_promoted_wherever_torchs_pass_would(
    function: Callable[[Tensor], Tensor], nothing: bool
) -> None:
    module = captured(function).graph_module
    before = str(module.graph)
    assert promotes_nothing(module) is nothing
    insert_type_promotion_nodes(module)
    assert (str(module.graph) == before) is nothing
