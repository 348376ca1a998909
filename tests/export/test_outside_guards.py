"""Modules whose sizes are computed: what capture takes for granted is tried at every size."""

from collections.abc import Callable
from pathlib import Path

import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linattn_export.build.from_python import export_module
from linattn_export.capture.guards import Failing, Guard, describe, points_of
from linattn_export.capture.program import capture
from linattn_export.options.request import BuildRequest
from linattn_export.options.variants import Range, Variant
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.errors import ExitCode, ExportError

WIDTH = 8
SPEC = {
    "inputs": {"x": {"shape": ["batch", "sequence", WIDTH]}},
    "symbols": {"batch": "1:4", "sequence": "1:40"},
}


class Net(nn.Module):
    """A function of the input, and modules that it may use."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parts)


def padded_blocks(x: Tensor) -> Tensor:
    b, n, d = x.shape
    blocks = F.pad(x.mT, (0, -n % 8), mode="constant").mT.reshape(b, -1, 8, d)
    return (blocks - blocks.mean(2, keepdim=True)).reshape(b, -1, d)[:, :n]


def replicated_blocks(x: Tensor) -> Tensor:
    b, n, d = x.shape
    blocks = F.pad(x.mT, (0, -n % 8), mode="replicate").mT.reshape(b, -1, 8, d)
    return blocks.cumsum(2).reshape(b, -1, d)[:, :n]


def blocks_rounded_up(x: Tensor) -> Tensor:
    b, n, d = x.shape
    count = (7 + n) // 8
    blocks = F.pad(x, (0, 0, 0, count * 8 - n)).view(b, count, 8, d)
    return blocks.flip(2).reshape(b, count * 8, d)[:, :n]


def windows_of_seven(x: Tensor) -> Tensor:
    n = x.size(1)
    windows = F.pad(x, (0, 0, 0, -n % 7)).reshape(x.size(0), -1, 7, x.size(2))
    return windows.roll((1, 3), (1, 2)).flatten(1, 2)[:, :n]


def mean_of_sixteen(x: Tensor) -> Tensor:
    n = x.size(1)
    means = F.pad(x, (0, 0, 0, -n % 16)).reshape(x.size(0), -1, 16, x.size(2)).mean(2)
    return means.repeat_interleave(16, 1)[:, :n]


def halved(x: Tensor) -> Tensor:
    return x[:, ::2].repeat_interleave(2, 1)[:, : x.size(1)]


def pooled_with_ceil(x: Tensor) -> Tensor:
    return F.interpolate(F.avg_pool1d(x.mT, 2, ceil_mode=True), size=x.size(1)).mT


def largest_with_ceil(x: Tensor) -> Tensor:
    found = F.max_pool1d(x.mT, 2, ceil_mode=True)
    return F.interpolate(found, size=x.size(1)).mT


def largest_in_the_plane(x: Tensor) -> Tensor:
    found = F.max_pool2d(x.mT.unsqueeze(2), (1, 3), (1, 2), (0, 1), ceil_mode=True)
    return F.interpolate(found.squeeze(2), size=x.size(1)).mT


def strided(x: Tensor, convolution: nn.Module) -> Tensor:
    return F.interpolate(convolution(x.mT), size=x.size(1), mode="nearest").mT


def down_and_up(x: Tensor, down: nn.Module, up: nn.Module) -> Tensor:
    found: Tensor = up(down(x.mT).relu())
    return x + found[..., : x.size(1)].mT


def unfolded(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 1, 1)).unfold(1, 3, 1).mean(-1)


def halves_exchanged(x: Tensor) -> Tensor:
    half = x.size(1) // 2
    one, other = torch.split(x, [half, x.size(1) - half], 1)
    return torch.cat([other, one], 1)


def rolled_by_half(x: Tensor) -> Tensor:
    return x.roll(x.size(1) // 2, 1)


def pairs_side_by_side(x: Tensor) -> Tensor:
    b, n, d = x.shape
    pairs = F.pad(x, (0, 0, 0, n % 2)).reshape(b, -1, 2 * d)
    return pairs.flip(-1).reshape(b, -1, d)[:, :n]


RIGHT = {
    "padded blocks": Net(padded_blocks),
    "replicated blocks": Net(replicated_blocks),
    "blocks rounded up": Net(blocks_rounded_up),
    "windows of seven": Net(windows_of_seven),
    "mean of sixteen": Net(mean_of_sixteen),
    "halved": Net(halved),
    "pooled with ceil": Net(pooled_with_ceil),
    "largest with ceil": Net(largest_with_ceil),
    "largest in the plane": Net(largest_in_the_plane),
    "strided": Net(strided, nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)),
    "down and up": Net(
        down_and_up,
        nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1),
        nn.ConvTranspose1d(WIDTH, WIDTH, 2, stride=2),
    ),
    "unfolded": Net(unfolded),
    "halves exchanged": Net(halves_exchanged),
    "rolled by half": Net(rolled_by_half),
    "pairs side by side": Net(pairs_side_by_side),
}


def subject_of(module: nn.Module, sequence: str = "1:40") -> Subject:
    spec = SPEC | {"symbols": {"batch": "1:4", "sequence": sequence}}
    return make_subject(module.eval(), read_spec(spec), BuildRequest(), "net", "net")


SLOW = ("padded blocks", "windows of seven", "mean of sixteen", "pairs side by side")
"""Long for torch, which solves equations."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in RIGHT],
)
def test_what_always_holds_is_no_reason_to_refuse(name: str) -> None:
    subject = subject_of(RIGHT[name], "4:40" if "replicated" in name else "1:40")
    variant = subject.variants[0]
    entry = subject.entry()
    program = capture(entry, subject, variant)
    targets = {str(node.target) for node in program.graph.nodes}
    assert not [target for target in targets if "assert" in target]
    ranges = {(int(r.lower), int(r.upper)) for r in program.range_constraints.values()}
    assert ranges == {(1, 4), (variant.sequence.low, 40)}
    module = program.module()
    for batch, n in ((1, variant.sequence.low), *((2, n) for n in range(5, 41, 3)), (4, 40)):
        x = torch.randn(batch, n, WIDTH)
        torch.testing.assert_close(module(x), entry(x), atol=1e-6, rtol=1e-5)


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.size(1) > 16 else x * 3


class Epsilon(nn.Module):
    """The same operators on both sides, and another number."""

    def forward(self, x: Tensor) -> Tensor:
        eps = 1e-6 if x.size(1) < 30 else 1e-8
        found: Tensor = x / (x.norm(dim=-1, keepdim=True) + eps)
        return found


class OneSize(nn.Module):
    """One size is another case."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flip(1) if x.size(1) == 37 else x.cumsum(1)


class Reflected(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x.mT, (3, 0), mode="reflect").mT[:, 3:]


class PairOfRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) > 2:
            return x.cumsum(1)
        return x


@pytest.mark.parametrize(
    ("module", "at", "fix", "line"),
    [
        (Branch(), "at sequence = 1:16", 'sequence = "17:40"', "x * 2 if x.size(1) > 16"),
        (Epsilon(), "at sequence = 30:40", 'sequence = "1:29"', "if x.size(1) < 30"),
        (OneSize(), "at sequence = 37", 'sequence = "1:36"', "if x.size(1) == 37"),
        (Reflected(), "at sequence = 1:3", 'sequence = "4:40"', "F.pad(x.mT, (3, 0)"),
        (PairOfRows(), "at batch = 1:2", 'batch = "3:4"', "if x.size(0) > 2"),
    ],
    ids=["branch", "epsilon", "one size", "reflected", "rows"],
)
def test_what_fails_somewhere_is_refused_with_its_sizes_and_line(
    module: nn.Module, at: str, fix: str, line: str
) -> None:
    subject = subject_of(module)
    with pytest.raises(ExportError) as caught:
        capture(subject.entry(), subject, subject.variants[0])
    said = str(caught.value)
    for part in (at, fix, line, Path(__file__).name):
        assert part in said
    assert "generated guard" not in said


def test_sizes_that_are_no_multiple_are_named_as_such() -> None:
    low, high = 8, 40
    variant = Variant(
        name="dynamic", sequence=Range(low=low, high=high), batch=Range(low=1, high=2)
    )
    guard = Guard(True, None)
    failing = Failing(guard, ("sequence",), {p for p in points_of(variant) if p[1] % 8})
    where, rest = describe(failing, variant)
    assert where == "sequence = every size that is not a multiple of 8"
    assert rest is None


def test_every_size_is_among_the_points_whatever_the_range() -> None:
    variant = Variant(name="dynamic", sequence=Range(low=3, high=4096), batch=Range(low=1, high=64))
    points = points_of(variant)
    assert {n for _, n in points} == set(range(3, 4097))
    assert {b for b, _ in points} == set(range(1, 65))
    assert len(points) == len(set(points)) < 40000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["replicated blocks", "strided"])
def test_the_file_passes_and_runs_at_every_size(name: str, tmp_path: Path) -> None:
    low = 9
    spec = SPEC | {"symbols": {"batch": "1:4", "sequence": f"{low}:64"}}
    report = export_module(
        RIGHT[name], spec, tmp_path / "out", formats=["onnx", "pt2"], latency=False, quiet=True
    )
    assert report.exit_code is ExitCode.PASS
    file = next((tmp_path / "out").rglob("model.onnx"))
    session = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for n in range(low, 65):
        x = torch.randn(2, n, WIDTH)
        (found,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), RIGHT[name](x), atol=1e-5, rtol=1e-4)


class CausalUnlessOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=x.size(1) > 1)


def test_a_flag_that_a_size_decides_is_told_so() -> None:
    subject = subject_of(CausalUnlessOne())
    with pytest.raises(ExportError, match="a size decides what must be a plain bool") as caught:
        capture(subject.entry(), subject, subject.variants[0])
    assert "is_causal=x.size(1) > 1" in str(caught.value)
