"""How held-out data is run: in batches that the artifact takes, and piece by piece from a state."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from linattn_runtime_checks.checks.held_out import run_task
from linattn_runtime_checks.contract.golden_pack import (
    ReferenceIndex,
    TaskIndex,
    open_reference,
    write_reference,
)
from linattn_runtime_checks.contract.manifest import Artifact, TensorSpec
from linattn_runtime_checks.results.report import TaskResult
from linattn_runtime_checks.runtimes.base import RunFailed, Tensors

CLASSES = 3
ROWS, LENGTH = 10, 6


class Counting:
    """Logits that name the class (sum of the tokens so far) modulo CLASSES; notes every shape."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.shapes: list[tuple[int, ...]] = []

    def run(self, inputs: Tensors) -> Tensors:
        tokens = inputs["tokens"]
        self.shapes.append(tokens.shape)
        past = inputs.get("past_state", np.zeros((len(tokens), 1), dtype=np.float32))
        sums = past + tokens.cumsum(axis=1)
        logits = np.eye(CLASSES, dtype=np.float32)[sums.astype(np.int64) % CLASSES]
        if self.whole:
            return {"output": logits[:, -1]}
        return {"output": logits, "present_state": sums[:, -1:].astype(np.float32)}

    def signature(self) -> tuple[list[TensorSpec], list[TensorSpec]] | None:
        return None

    def labels(self) -> str | None:
        return None

    def providers(self) -> list[str]:
        return ["cpu"]


def artifact(*, batch: tuple[int, int], sequence: tuple[int, int], state: bool = False) -> Artifact:
    out = ["batch", "sequence", CLASSES] if state else ["batch", CLASSES]
    tokens = {"name": "tokens", "dtype": "int64", "shape": ["batch", "sequence"]}
    link = {
        "input": "past_state", "output": "present_state", "shape": ["batch", 1],
        "dtype": "float32", "layout": "batch, sum",
    }  # fmt: skip
    return Artifact.model_validate(
        {
            "id": "m/x/onnx/dynamic", "path": "m.onnx", "sha256": "0" * 64, "bytes": 1,
            "model": "m", "method": "x", "config": {}, "format": "onnx", "variant": "dynamic",
            "dtype": "float32", "parameters": 1, "weight_bytes": 4,
            "states": [link] if state else [],
            "inputs": [tokens | {"axes": tokens["shape"]}],
            "outputs": [{"name": "output", "dtype": "float32", "shape": out, "axes": out}],
            "axes": [{"name": "batch", "declared": batch, "captured": 2},
                     {"name": "sequence", "declared": sequence, "captured": 2}],
            "reference": "m.safetensors",
        }
    )  # fmt: skip


def score(
    folder: Path, session: Counting, made: Artifact, change: Callable[[NDArray[Any]], Any]
) -> TaskResult | None:
    """Of ``session`` on tokens whose labels are right before ``change``."""
    tokens = np.random.default_rng(0).integers(0, 9, (ROWS, LENGTH))
    labels = tokens.cumsum(axis=1) % CLASSES
    labels = change(labels if made.states else labels[:, -1])
    task = TaskIndex(metric="top1", description="sums", reference_score=1.0, allowed=0.1)
    tensors = {"task/input/tokens": tokens, "task/labels": labels}
    path = folder / "pack.safetensors"
    write_reference(path, ReferenceIndex(dtype="float32", cases=[], task=task), tensors)
    with open_reference(path) as pack:
        return run_task(session, made, pack)


@pytest.mark.parametrize(
    ("batch", "state", "sequence", "shapes"),
    [
        pytest.param((1, 64), False, (1, 9), [(10, 6)], id="all-at-once"),
        pytest.param((1, 4), False, (6, 6), [(4, 6), (4, 6), (2, 6)], id="several-batches"),
        pytest.param((4, 4), False, (1, 9), [(4, 6)] * 3, id="the-last-is-filled-up"),
        pytest.param((1, 64), True, (1, 9), [(10, 6)], id="a-prefill-at-once"),
        pytest.param((1, 64), True, (1, 1), [(10, 1)] * 6, id="a-step-token-by-token"),
        pytest.param((8, 8), True, (3, 3), [(8, 3)] * 4, id="a-prefill-in-pieces"),
        pytest.param((1, 64), False, (1, 5), None, id="too-long"),
        pytest.param((1, 64), False, (7, 9), None, id="too-short"),
        pytest.param((1, 64), True, (4, 4), None, id="not-a-multiple"),
    ],
)
def test_every_row_is_scored_once(
    batch: tuple[int, int],
    state: bool,
    sequence: tuple[int, int],
    shapes: list[tuple[int, int]] | None,
    tmp_path: Path,
) -> None:
    made = artifact(batch=batch, sequence=sequence, state=state)
    session = Counting(whole=not state)
    found = score(tmp_path, session, made, lambda labels: labels)
    if shapes is None:
        assert found is None
        assert not session.shapes
        return
    assert found is not None
    assert session.shapes == shapes
    assert (found.score, found.samples) == (1.0, ROWS)

    def two_wrong(labels: NDArray[Any]) -> NDArray[Any]:
        wrong = labels.copy()
        wrong[-2:] = (wrong[-2:] + 1) % CLASSES
        return wrong

    found = score(tmp_path, Counting(whole=not state), made, two_wrong)
    assert found is not None
    assert found.score == pytest.approx(0.8)


def test_outputs_that_do_not_go_with_the_labels_say_so(tmp_path: Path) -> None:
    made = artifact(batch=(1, 64), sequence=(1, 9))
    with pytest.raises(RunFailed, match=r"shape \[10, 3\], which does not go with .* \[10, 6\] of"):
        score(tmp_path, Counting(whole=True), made, lambda labels: np.zeros((ROWS, LENGTH), int))
    with pytest.raises(RunFailed, match=r"shape \[10, 3\], which does not .* \[10\] of 5 classes"):
        score(tmp_path, Counting(whole=True), made, lambda labels: labels + 2)


def test_a_pack_without_a_task_has_no_score(tmp_path: Path) -> None:
    path = tmp_path / "pack.safetensors"
    write_reference(path, ReferenceIndex(dtype="float32", cases=[]), {"x": np.zeros(1)})
    made = artifact(batch=(1, 64), sequence=(1, 9))
    with open_reference(path) as pack:
        assert run_task(Counting(whole=True), made, pack) is None
