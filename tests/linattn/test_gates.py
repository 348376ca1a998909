"""Gates leave PyTorch exactly: a sigmoid far below zero, its log, and what they multiply."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from linattn.numerics import log_logistic, logistic, silu

Gate = Callable[[Tensor], Tensor]
PLACES = torch.tensor([*range(-80, 81), -1e4, -88.0, -1e-3, 1e-3, 88.0, 1e4])
ROUNDINGS = 1e-6
"""A few roundings of 6e-8: an exponential, a sum and a quotient."""


class Module(nn.Module):
    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x)


def in_onnx_runtime(gate: Gate, place: Path) -> NDArray[np.float32]:
    with torch.no_grad():
        program = torch.export.export(Module(gate), (PLACES,))
        exported: Any = torch.onnx.export(program, (), dynamo=True, verbose=False)
    exported.save(place / "gate.onnx")
    session = ort.InferenceSession(place / "gate.onnx", providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: PLACES.numpy()})[
        0
    ]
    return found


def worst(found: NDArray[np.float32], expected: Tensor) -> float:
    """The largest relative error where the truth is a normal float32."""
    truth = expected.numpy()
    normal = np.abs(truth) > 1.2e-38
    with np.errstate(invalid="ignore"):
        apart = np.abs(found[normal].astype(np.float64) - truth[normal]) / np.abs(truth[normal])
    return float(np.nan_to_num(apart, nan=np.inf).max())


@pytest.mark.parametrize(
    ("ours", "truth"),
    [(logistic, torch.sigmoid), (silu, nn.functional.silu)],
    ids=["logistic", "silu"],
)
def test_a_gate_is_exact_at_both_ends(ours: Gate, truth: Gate, tmp_path: Path) -> None:
    expected = truth(PLACES.double())
    assert worst(in_onnx_runtime(ours, tmp_path), expected) < ROUNDINGS
    assert worst(ours(PLACES).numpy(), expected) < ROUNDINGS


def test_the_log_of_a_gate_is_finite_and_right(tmp_path: Path) -> None:
    """To an absolute rounding of 1: it is added to others, and then is an exponent."""
    expected = nn.functional.logsigmoid(PLACES.double()).numpy()
    for found in (in_onnx_runtime(log_logistic, tmp_path), log_logistic(PLACES).numpy()):
        assert np.isfinite(found).all()
        assert (np.abs(found - expected) <= ROUNDINGS * np.maximum(np.abs(expected), 1)).all()


def test_what_exporters_write_is_not_exact(tmp_path: Path) -> None:
    """Why the gates are spelled out; where this fails, ONNX Runtime's own will do.

    Its sigmoid ends in zero or near 1.5e-8 below -18, as the processor's kernel has it: the whole
    of the number is lost, a relative error of 1 or more.
    """
    expected = torch.sigmoid(PLACES.double())
    assert worst(in_onnx_runtime(torch.sigmoid, tmp_path), expected) > 0.5
    log = in_onnx_runtime(nn.functional.logsigmoid, tmp_path)
    truth = nn.functional.logsigmoid(PLACES.double()).numpy()
    assert not np.allclose(log, truth, rtol=0.1)
