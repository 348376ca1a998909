"""A loop over tokens that a graph writes out is said, and what only looks like one is not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linattn_export.build.from_python import export_module
from linattn_export.formats.base import Job
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.manifest import Note, read


class Loop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        state, found = torch.zeros_like(x[:, 0]), []
        for token in range(x.size(1)):
            state = state * 0.5 + x[:, token]
            found.append(state)
        return torch.stack(found, 1)


class Unbound(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = x.unbind(1)[0]
        for token in x.unbind(1)[1:]:
            total = torch.maximum(total, token)
        return total


class Deep(nn.Module):
    """As many layers as tokens; not one for each."""

    def __init__(self, layers: int = 24) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


class Whole(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


class OneLength(nn.Module):
    """Layers as many as tokens, and a table that fits one length."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = Deep(16)
        self.table = nn.Parameter(torch.randn(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.deep(x + self.table)
        return found


def notes_of(module: nn.Module, sequence: str) -> tuple[Note, ...]:
    spec: dict[str, Any] = {
        "inputs": {
            "x": {"shape": ["batch", 16 if isinstance(module, OneLength) else "sequence", 4]}
        },
        "symbols": {"batch": "1:4", "sequence": sequence},
    }
    if isinstance(module, OneLength):
        del spec["symbols"]["sequence"]
    subject = make_subject(module.eval(), read_spec(spec), BuildRequest(), "net", "net")
    return Job.of(subject, subject.variants[0], 18).notes


@pytest.mark.parametrize(
    ("module", "line"),
    [(Loop(), "state * 0.5 + x[:, token]"), (Unbound(), "torch.maximum(total, token)")],
    ids=["loop", "unbound"],
)
def test_a_loop_over_tokens_is_said_with_its_line(module: nn.Module, line: str) -> None:
    (note,) = notes_of(module, "24")
    assert note.code == Code.GRAPH_UNROLLED
    assert line in note.message
    assert "with 12 tokens" in note.message
    assert "grows with the length" in note.message


@pytest.mark.parametrize(
    ("module", "sequence"),
    [(Deep(), "24"), (Whole(), "24"), (Whole(), "1:24"), (Loop(), "4"), (OneLength(), "16")],
    ids=["deep", "whole", "any length", "few tokens", "one length"],
)
def test_what_does_not_grow_is_not_accused(module: nn.Module, sequence: str) -> None:
    assert notes_of(module, sequence) == ()


def test_the_report_says_it_and_the_file_passes(tmp_path: Path) -> None:
    spec = {
        "inputs": {"x": {"shape": ["batch", "sequence", 4]}},
        "symbols": {"batch": "1:2", "sequence": "12"},
        "promises": {"causal": True, "cost": "linear"},
    }
    report = export_module(
        Loop(), spec, tmp_path / "out", formats=["onnx"], latency=False, quiet=True
    )
    assert report.exit_code is ExitCode.PASS
    (artifact,) = read(tmp_path / "out").artifacts
    assert [note.code for note in artifact.notes] == [Code.GRAPH_UNROLLED]
    found = [finding.code for result in report.artifacts for finding in result.findings]
    assert Code.GRAPH_UNROLLED in found
