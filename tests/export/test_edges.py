"""Denominators, roots and logarithms of people's modules are driven to their edge."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linattn_export import export_module
from linattn_export.formats.base import Job
from linattn_export.golden.edges import edge_cases, edge_of, find_edges
from linattn_export.golden.pool import candidates
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.results.report import Report
from siblings import siblings

Function = Callable[[Tensor, float], Tensor]
SIZES = {"batch": 2, "sequence": 9}


class Net(nn.Module):
    """``function`` of projected tokens; ``planted`` is the epsilon of what is exported."""

    def __init__(self, function: Function, epsilon: float, planted: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.project = nn.Linear(8, 12)
        self.function, self.epsilon = function, epsilon
        self.planted = epsilon if planted is None else planted

    def forward(self, x: Tensor) -> Tensor:
        exporting = torch.compiler.is_exporting()
        return self.function(self.project(x), self.planted if exporting else self.epsilon)


def relu_attention(x: Tensor, epsilon: float) -> Tensor:
    q, k, v = x.chunk(3, -1)
    q, k = F.relu(q), F.relu(k)
    return (q @ (k.mT @ v)) / ((q * k.sum(1, keepdim=True)).sum(-1, keepdim=True) + epsilon)


def by_norm(x: Tensor, epsilon: float) -> Tensor:
    x = F.relu(x[..., :4])
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return x / (length + epsilon)


def by_root_of_squares(x: Tensor, epsilon: float) -> Tensor:
    x = F.relu(x[..., :4])
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + epsilon)


def by_negative_power(x: Tensor, epsilon: float) -> Tensor:
    x = F.relu(x[..., :4])
    return x * ((x * x).sum(-1, keepdim=True) + epsilon).pow(-0.5)


def by_variance(x: Tensor, epsilon: float) -> Tensor:
    x = F.relu(x[..., :4])
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)


def log_of_softmax(x: Tensor, epsilon: float) -> Tensor:
    return ((20 * x).softmax(-1) + epsilon).log()


def by_cosine(x: Tensor, epsilon: float) -> Tensor:
    return 1 / (1 - torch.cos(F.relu(x[..., :4])) + epsilon)


def far_away(x: Tensor, epsilon: float) -> Tensor:
    """Zero where a projection is below -3, which no usual and no special input makes it."""
    return x / (F.relu(x[..., :1].clamp(-6, 6) + 3) + epsilon)


KINDS = [
    relu_attention, by_norm, by_root_of_squares, by_negative_power, by_variance, log_of_softmax,
    by_cosine, far_away,
]  # fmt: skip


def spec(**more: Any) -> dict[str, Any]:
    return {
        "symbols": {"batch": "1:4", "sequence": "1:40"},
        "inputs": {"x": {"shape": ["batch", "sequence", 8]} | more},
    }


def subject_of(module: nn.Module, inputs: dict[str, Any]) -> Subject:
    request = BuildRequest(formats=("onnx",))
    return make_subject(module.eval(), read_spec(inputs), request, "net", "net")


def program_of(subject: Subject) -> Any:
    return Job.of(subject, subject.variants[0], 18).program


def edges_of(module: nn.Module, inputs: dict[str, Any]) -> tuple[Subject, list[dict[str, Tensor]]]:
    subject = subject_of(module, inputs)
    return subject, find_edges(program_of(subject), subject, SIZES)


@pytest.mark.parametrize("function", KINDS)
def test_what_an_epsilon_guards_is_brought_down_to_it(function: Function) -> None:
    """Without it the outputs are another thing altogether."""
    subject, found = edges_of(Net(function, 1e-8), spec())
    assert 1 <= len(found) <= 8
    without = Net(function, 0.0).requires_grad_(False)
    subject.module.requires_grad_(False)
    without.load_state_dict(subject.module.state_dict())
    moves = []
    for inputs in found:
        one, other = subject.module(inputs["x"]), without(inputs["x"])
        assert inputs["x"].shape == (2, 9, 8)
        if one.isfinite().all():
            gone = not bool(other.isfinite().all())
            moves.append(gone or float((one - other).norm() / one.norm()) > 0.1)
    assert any(moves)


def test_the_search_stays_inside_of_what_the_input_may_hold() -> None:
    inputs = spec(range=[-0.5, 2])
    subject, found = edges_of(
        Net(lambda x, e: x / (x.sum(-1, keepdim=True) ** 2 + e), 1e-8), inputs
    )
    drawn = [*found, *candidates(subject, SIZES)]
    assert found
    assert all(float(one["x"].min()) >= -0.5 and float(one["x"].max()) <= 2 for one in drawn)


def test_nothing_is_found_where_there_is_no_edge() -> None:
    def smooth(x: Tensor, epsilon: float) -> Tensor:
        return x / (x.exp() + 1 + epsilon) / x.size(1) / torch.tensor(8.0).sqrt() + x**2

    assert edges_of(Net(smooth, 1e-8), spec())[1] == []


def test_where_an_operator_has_no_gradient_the_pool_is_used() -> None:
    class Rounds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / (x.round().abs().sum(-1, keepdim=True) + 1e-8)

    assert len(edges_of(Rounds(), spec())[1]) == 1


def test_tokens_and_masks_beside_numbers() -> None:
    """Only floating-point inputs can be moved; a pool of tokens is tried."""

    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.size = nn.Parameter(torch.tensor([[0.0], [1.0], [2.0]]))

        def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
            kept = attention_mask[..., None]
            return kept / (self.size[tokens] + 1e-8)

    inputs = {
        "symbols": {"batch": "1:4", "sequence": "1:40"},
        "inputs": {
            "tokens": {"dtype": "int64", "shape": ["batch", "sequence"], "range": [0, 2]},
            "attention_mask": {"kind": "mask", "shape": ["batch", "sequence"]},
        },
    }
    _, found = edges_of(Looked(), inputs)
    assert found
    assert any((one["tokens"] == 0).any() for one in found)


@pytest.mark.parametrize(
    ("operator", "has"),
    [
        (lambda x: 1 / x, True), (lambda x: x / 3, False), (torch.rsqrt, True),
        (torch.sqrt, True), (torch.log, True), (torch.log2, True), (torch.log10, True),
        (torch.log1p, True), (torch.atanh, True), (lambda x: x**-1, True), (lambda x: x**0.5, True),
        (lambda x: x**2, False), (lambda x: x**3.0, False), (torch.exp, False),
        (lambda x: torch.div(x, x + 3, rounding_mode="floor"), False),
        (lambda x: (x + 1).sqrt_(), True), (lambda x: x.clone().div_(x), True),
    ],
)  # fmt: skip
def test_which_operators_have_an_edge(operator: Any, has: bool) -> None:
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = operator(x)
            return found

    program = torch.export.export(One(), (torch.rand(2, 3),))
    assert any(edge_of(node) is not None for node in program.graph.nodes) == has


def test_equal_builds_find_equal_inputs() -> None:
    one, other = (edges_of(Net(by_variance, 1e-8), spec())[1] for _ in range(2))
    assert [x["x"].numpy().tobytes() for x in one] == [x["x"].numpy().tobytes() for x in other]


def test_cases_have_names_of_their_own_and_fit_the_declared_sizes() -> None:
    inputs = spec() | {"symbols": {"batch": "3", "sequence": "12:40"}}
    subject = subject_of(
        Net(lambda x, e: relu_attention(x, e) + by_norm(x, e)[..., :4], 1e-6), inputs
    )
    plans = [plan for plan, _ in edge_cases(subject, {"dynamic": program_of(subject)})]
    assert len({plan.name for plan in plans}) == len(plans) >= 1
    assert all(plan.hostile and (plan.stored, plan.sequence) == (3, 12) for plan in plans)


def exported(module: nn.Module, folder: Path) -> Report:
    return export_module(
        module.eval(), spec(), folder, name="net", formats=["onnx"], latency=False, quiet=True
    )


@pytest.mark.parametrize("function", siblings([relu_attention, far_away]))
def test_a_file_without_the_epsilon_is_rejected(function: Function, tmp_path: Path) -> None:
    report = exported(Net(function, 1e-6, planted=0.0), tmp_path / "out")
    assert report.exit_code is ExitCode.PARITY
    failed = {case.code for case in report.artifacts[0].runtimes[0].cases if case.family == "edge"}
    assert failed & {Code.NONFINITE_MISMATCH, Code.PARITY_EXCEEDED}


class Many(nn.Module):
    """Every kind at once, with epsilons that single precision can hold."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.project = nn.Linear(8, 12)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.project(x)
        return {function.__name__: function(x, 1e-5) for function in KINDS}


def test_a_right_file_passes_at_its_edges(tmp_path: Path) -> None:
    report = exported(Many(), tmp_path / "out")
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    with open_reference(tmp_path / "out" / "net" / "own" / "reference.safetensors") as pack:
        edges = [case.name for case in pack.index.cases if case.family == "edge"]
    assert 1 <= len(edges) <= 8


class OverTokens(nn.Module):
    """Each channel less its mean over tokens, by its deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project(x)
        x = x - x.mean(1, keepdim=True)
        return x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-5)


@pytest.mark.parametrize("more", [{}, {"range": [0, 255]}, {"positive": True}])
def test_no_two_tokens_are_equal(more: dict[str, Any]) -> None:
    """Their difference would be 0 by symmetry, and something else by the luck of rounding."""
    subject, found = edges_of(OverTokens(), spec(**more))
    for inputs in [*found, *candidates(subject, SIZES)]:
        tokens = inputs["x"].flatten(0, 1)
        assert len({tuple(token) for token in tokens.tolist()}) == len(tokens)


def test_rounding_of_nearly_equal_tokens_accuses_nobody(tmp_path: Path) -> None:
    torch.manual_seed(1)
    report = exported(OverTokens(), tmp_path / "out")
    assert report.exit_code is ExitCode.PASS, report.all_findings()
