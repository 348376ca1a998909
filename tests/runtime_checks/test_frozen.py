"""Three faults of an axis, each with its own code: static, renamed, frozen inside."""

import warnings
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

from conftest import CallCli
from folders import CHECK, DYNAMIC, QUICK, SCRIPT, alter, codes, only, report_of, restamp
from linattn_runtime_checks.checks.frozen_axes import frozen_axes
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.manifest import Artifact, read
from linattn_runtime_checks.faults.editing import Graph
from linattn_runtime_checks.faults.graphs import GRAPH_FAULTS
from linattn_runtime_checks.results.report import CaseResult
from siblings import siblings


def planted(folder: Path, name: str) -> Callable[[onnx.ModelProto], None]:
    (artifact,) = [a for a in read(folder).artifacts if a.id == DYNAMIC]

    def change(model: onnx.ModelProto) -> None:
        assert GRAPH_FAULTS[name].plant(Graph(model), artifact)

    return change


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        ("length-static", "axis_became_static", "axis 1 (sequence) became static: 24"),
        ("batch-static", "axis_became_static", "axis 0 (batch) became static: 4"),
        ("axis-renamed", "axis_renamed", "axis 1 (sequence) was renamed to 's77'"),
        (
            "count-frozen",
            "axis_frozen_inside",
            "axis sequence is labelled dynamic but frozen inside: right at the captured 24, wrong",
        ),
        (
            "loop-unrolled",
            "axis_frozen_inside",
            "right at the captured 24 (and 1, 2, 3, 7, 16, 17), wrong at 31, 32, 33",
        ),
        (
            "batch-frozen-inside",
            "axis_frozen_inside",
            "axis batch is labelled dynamic but frozen inside: right at the captured 4, wrong at 1",
        ),
    ],
)
def test_each_fault_of_an_axis_has_its_code(
    fault: str, code: str, says: str, folder_copy: Path, call_cli: CallCli
) -> None:
    alter(folder_copy, DYNAMIC, planted(folder_copy, fault))
    only(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    assert done.returncode == 1, done.stderr
    assert says in done.stderr
    others = {"axis_became_static", "axis_renamed", "axis_frozen_inside"} - {code}
    found = codes(report_of(done), DYNAMIC)
    assert code in found
    assert not found & others


class ChunkLoop(nn.Module):
    """A loop over chunks of 8 tokens, as people write it; a tracer unrolls it."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        parts = []
        for start in range(0, hidden_states.shape[1], 8):
            parts.append(self.layer(hidden_states)[:, start : start + 8])
        return torch.cat(parts, dim=1)

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer


class BranchOnLength(nn.Module):
    """A branch on the number of tokens; a tracer keeps the side that it saw."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden_states: Tensor) -> Tensor:
        output: Tensor = self.layer(hidden_states)
        if hidden_states.shape[1] < 25:
            return output
        return output * 1.0 + 0.0 * output.sum(dim=1, keepdim=True)


@pytest.mark.parametrize(
    ("module", "wrong_side"), siblings([(ChunkLoop, "longer"), (BranchOnLength, "none")])
)
def test_a_traced_loop_over_chunks(
    module: type[nn.Module], wrong_side: str, folder_copy: Path, call_cli: CallCli
) -> None:
    """torch.jit.trace writes a file that takes every length and is right up to the traced one."""
    path = folder_copy / SCRIPT / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = torch.jit.load(str(path))  # type: ignore[no-untyped-call]
        traced = torch.jit.trace(module(right), torch.zeros(4, 24, 32))  # type: ignore[no-untyped-call]
        traced.save(str(path))
    restamp(folder_copy, SCRIPT)
    only(folder_copy, SCRIPT)
    done = call_cli(CHECK, folder_copy, "--runtime", "torchscript", "--no-latency", "--json")
    assert done.returncode != 70, done.stderr
    found = codes(report_of(done), SCRIPT)
    if wrong_side == "none":
        assert done.returncode == 0, "this branch changes no number: there is nothing to reject"
        return
    assert done.returncode == 1
    assert "axis_frozen_inside" in found


def artifact() -> Artifact:
    axes = [
        {"name": "batch", "declared": (1, 8), "captured": 6},
        {"name": "sequence", "declared": (1, 64), "captured": 24},
    ]
    return Artifact.model_construct(id="a", axes=[_axis(each) for each in axes])


def _axis(values: dict[str, object]) -> object:
    from linattn_runtime_checks.contract.manifest import AxisRange

    return AxisRange.model_validate(values)


def case(batch: int, sequence: int, code: Code = Code.PASS, error: float = 1.0) -> CaseResult:
    return CaseResult(
        mode="default",
        case="",
        family="normal",
        batch=batch,
        sequence=sequence,
        code=code,
        row_error=error,
    )


def found(*cases: CaseResult, static: frozenset[str] = frozenset()) -> list[str]:
    findings = frozen_axes(artifact(), cases, labelled_static=static)
    return [finding.message.split("axis ")[1].split()[0] for finding in findings]


WRONG = Code.PARITY_EXCEEDED


def test_what_is_frozen_is_told_from_what_is_wrong() -> None:
    right = [case(6, 24), case(3, 24), case(6, 37), case(1, 7)]
    assert found(*right) == []
    assert found(case(6, 24), case(3, 24), case(6, 37, WRONG), case(1, 7)) == ["sequence"]
    assert found(case(6, 24), case(3, 24, WRONG), case(6, 37), case(1, 7, WRONG)) == ["batch"]
    assert found(case(6, 24, WRONG), case(3, 24, WRONG), case(1, 7, WRONG)) == [], "just wrong"
    small = case(6, 37, WRONG, error=1e-4)
    assert found(case(6, 24), case(3, 24), small) == [], "a matter of precision"
    failed = case(6, 37, Code.RUN_FAILED)
    assert found(case(6, 24), case(3, 24), failed) == ["sequence"]
    assert found(case(6, 24), failed, static=frozenset({"sequence"})) == []
