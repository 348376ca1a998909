"""The recurrence leaves PyTorch: every format, every rule, lengths that the exporter never saw."""

from pathlib import Path
from typing import Optional

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from linattn.recurrent import chunked, recurrent_oracle
from linattn_export.capture.program import sizes_may_be_one
from recurrent_cases import RULES, SCALE, Rule, draw, error

SINGLE = 1e-6
CAPTURED = 100
LENGTHS = (1, 2, 63, 64, 65, 257, 1000)


class Recurrence(nn.Module):
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        decay: Optional[Tensor],
        beta: Optional[Tensor],
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        return chunked(query, key, value, decay, beta, state, 0.4)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_format_takes_every_length(rule: Rule, tmp_path: Path) -> None:
    example = draw(rule, CAPTURED).to(torch.float32)
    batch, sequence = Dim("batch", min=1, max=8), Dim("sequence", min=1, max=4096)
    axes = {
        name: None if tensor is None else {0: batch} if name == "state" else {0: batch, 1: sequence}
        for name, tensor in example.by_name().items()
    }
    module = Recurrence()
    with sizes_may_be_one():
        program = torch.export.export(module, (*example.by_name().values(),), dynamic_shapes=axes)
    torch.export.save(program, tmp_path / "m.pt2")
    loaded = torch.export.load(tmp_path / "m.pt2").module()
    exported = torch.onnx.export(program, (), dynamo=True, opset_version=18, verbose=False)
    assert exported is not None
    exported.save(tmp_path / "m.onnx")
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    scripted = torch.jit.script(module)
    for length in LENGTHS:
        x = draw(rule, length)
        expected = recurrent_oracle(**x.by_name(), scale=SCALE)
        single = [*x.to(torch.float32).by_name().values()]
        arrays = [tensor.numpy() for tensor in single if tensor is not None]
        found = {
            "onnx": session.run(None, dict(zip(names, arrays, strict=True))),
            "pt2": loaded(*single),
            "torchscript": scripted(*single),
        }
        for kind, outputs in found.items():
            for output, truth in zip(outputs, expected, strict=True):
                assert error(torch.as_tensor(np.asarray(output)), truth) < SINGLE, (kind, length)
