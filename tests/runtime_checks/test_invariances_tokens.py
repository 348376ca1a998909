"""Padding of whole numbers: garbage in it must reach a model of tokens, and a leak be found."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from checking import performed
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import (
    Case,
    ReferenceIndex,
    StoredError,
    open_reference,
    write_reference,
)
from linattn_runtime_checks.contract.manifest import Artifact, TensorSpec
from linattn_runtime_checks.runtimes.base import Tensors

BATCH, LENGTH, ROWS = 3, 6, 8


class Mean:
    """The mean of rows of a table, over real tokens; ``leak`` is the weight of padding in it."""

    def __init__(self, leak: float) -> None:
        self.leak = leak
        self.table = np.random.default_rng(0).standard_normal((ROWS, 2)).astype(np.float32)
        self.seen: set[int] = set()

    def run(self, inputs: Tensors) -> Tensors:
        tokens, mask = inputs["tokens"], inputs["attention_mask"]
        self.seen |= set(tokens[~mask].tolist())
        weights = np.where(mask, 1, self.leak).astype(np.float32)[..., None]
        return {"output": (self.table[tokens] * weights).sum(1) / weights.sum(1)}

    def signature(self) -> tuple[list[TensorSpec], list[TensorSpec]] | None:
        return None

    def labels(self) -> str | None:
        return None

    def providers(self) -> list[str]:
        return ["cpu"]


def artifact() -> Artifact:
    axes = ["batch", "sequence"]
    inputs = [("tokens", "int64"), ("attention_mask", "bool")]
    return Artifact.model_validate(
        {
            "id": "m/x/onnx/dynamic", "path": "m.onnx", "sha256": "0" * 64, "bytes": 1,
            "model": "m", "method": "x", "config": {}, "format": "onnx", "variant": "dynamic",
            "dtype": "float32", "parameters": 1, "weight_bytes": 4, "reference": "m.safetensors",
            "inputs": [{"name": n, "dtype": d, "shape": axes, "axes": axes} for n, d in inputs],
            "outputs": [{"name": "output", "dtype": "float32", "shape": ["batch", 2],
                         "axes": ["batch", 2]}],
            "axes": [{"name": "batch", "declared": [1, 4], "captured": 2},
                     {"name": "sequence", "declared": [1, 9], "captured": 2}],
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("leak", "code"), [(0.0, Code.PASS), (1e-3, Code.PADDING_LEAKS)], ids=["right", "leaks"]
)
@pytest.mark.parametrize("side", ["right-padding", "left-padding"])
def test_other_tokens_in_padding_change_nothing(
    side: str, leak: float, code: Code, tmp_path: Path
) -> None:
    none = StoredError(row=1e-6, whole=1e-6)
    case = Case(
        name=side, family=side, batch=BATCH, sequence=LENGTH, stored=side,
        eager_error=none, sensitivity=none,
    )  # fmt: skip
    mask: NDArray[np.bool_] = np.arange(LENGTH) < np.array([[2], [6], [3]])
    tokens = np.random.default_rng(1).integers(1, ROWS, (BATCH, LENGTH))
    tensors = {
        f"{side}/input/tokens": tokens,
        f"{side}/input/attention_mask": mask if side == "right-padding" else mask[:, ::-1],
    }
    path = tmp_path / "pack.safetensors"
    write_reference(path, ReferenceIndex(dtype="float32", cases=[case]), tensors)
    session = Mean(leak)
    with open_reference(path) as pack:
        found = {c.name: c.code for c in performed(session, artifact(), pack, ["padding"]).checks}
    assert found["padding"] is code
    assert session.seen <= set(range(tokens.min(), tokens.max() + 1)), "no row that is not there"
