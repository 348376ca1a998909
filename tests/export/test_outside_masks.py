"""Masks, NaN and shapes as other people's modules have them: what is wrong, and what only looks so.

Each kind has siblings; most of them passed, or failed though they were right, before it was told.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linattn_export import export_module
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode, UsageError
from linattn_runtime_checks.contract.manifest import Artifact, read
from linattn_runtime_checks.report.tables import artifact_table
from linattn_runtime_checks.results.report import Report
from siblings import siblings

X: dict[str, Any] = {"x": {"shape": ["batch", "sequence", 8]}}
MASK: dict[str, Any] = {"kind": "mask", "shape": ["batch", "sequence"]}


def exported(
    module: nn.Module,
    tmp_path: Path,
    mask: dict[str, Any] | None = None,
    promises: dict[str, Any] | None = None,
    sequence: str = "1:40",
) -> tuple[Report, Artifact]:
    """The report of an export, and the manifest's entry."""
    inputs = X if mask is None else X | {"attention_mask": MASK | mask}
    spec = {
        "symbols": {"batch": "1:4", "sequence": sequence},
        "inputs": inputs,
        "promises": promises or {},
    }
    folder = tmp_path / "out"
    report = export_module(module, spec, folder, formats=["onnx"], latency=False, quiet=True)
    (artifact,) = read(folder).artifacts
    return report, artifact


def failing(report: Report) -> set[Code]:
    return {f.code for f in report.all_findings() if f.exit_code is not ExitCode.PASS}


def noted(report: Report) -> set[Code]:
    return {f.code for f in report.all_findings() if f.exit_code is ExitCode.PASS}


def mean_of(x: Tensor, keep: Tensor) -> Tensor:
    kept = keep.unsqueeze(-1).to(x.dtype)
    return x + (x * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)


class MaskDroppedAlone(nn.Module):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        several = torch.ones_like(x[:, 0, 0]).sum() > 1.5
        return mean_of(x, attention_mask | ~several)


class FirstMaskForAll(nn.Module):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return mean_of(x, attention_mask[:1].expand_as(attention_mask))


class CountOverBatch(nn.Module):
    """Divides by the mean number of real tokens of a batch: alone, and without padding, right."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        kept = attention_mask.unsqueeze(-1).to(x.dtype)
        return (x * kept).sum(1) / kept.sum(1).mean(0).clamp(min=1)


class AddedAlone(nn.Module):
    """Special for one sequence of one token, where the usual case does not look."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        one = torch.ones_like(x[:, :, 0]).sum() < 1.5
        return mean_of(x, attention_mask) + one.to(x.dtype)


class BranchOnBatch(nn.Module):
    """Its branch is decided at capture, which sees several sequences."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        if x.shape[0] > 1:
            return mean_of(x, attention_mask)
        return mean_of(x, torch.ones_like(attention_mask))


class BranchOnLength(nn.Module):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        if x.shape[1] > 1:
            return mean_of(x, attention_mask)
        return mean_of(x, torch.ones_like(attention_mask))


@pytest.mark.parametrize("kind", siblings([BranchOnBatch, BranchOnLength]))
def test_a_branch_that_drops_the_mask_at_size_one_is_no_export(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    """The file has one of the branches, and is wrong where the module takes the other."""
    report, _ = exported(kind(), tmp_path, {})
    assert Code.PARITY_EXCEEDED in failing(report)


@pytest.mark.parametrize(
    "kind",
    siblings([MaskDroppedAlone, FirstMaskForAll, CountOverBatch, AddedAlone]),
    ids=lambda k: k.__name__,
)
def test_what_is_special_about_one_sequence_alone_is_seen(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    report, _ = exported(kind(), tmp_path, {})
    assert Code.BATCH_DEPENDENT in failing(report)
    assert not failing(report) & {Code.PARITY_EXCEEDED, Code.NONFINITE_MISMATCH}


class UnmaskedDecay(nn.Module):
    """V is masked; what the state loses at a padded token is not."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        log_decay = -0.1 * F.softplus(x).clamp(max=5)
        total = log_decay.cumsum(1)
        between = torch.exp((total.unsqueeze(2) - total.unsqueeze(1)).clamp(max=0))
        causal = torch.arange(x.size(1)).unsqueeze(1) >= torch.arange(x.size(1))
        kept = (causal & attention_mask.unsqueeze(1)).unsqueeze(-1).to(x.dtype)
        return (between * kept * x.clamp(-5, 5).unsqueeze(1)).sum(2)


class HolesCount(nn.Module):
    """From the first real token to the last: right for padding on either side."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        number = attention_mask.to(torch.int64)
        reached, left = number.cumsum(1), number.flip(1).cumsum(1).flip(1)
        return mean_of(x, (reached > 0) & (left > 0))


class UnmaskedShift(nn.Module):
    """Each token sees the one before, padded or not: right for padding on the right."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, 0))[:, : x.size(1)]
        return x + before


class LastByNumber(nn.Module):
    """The token whose place is the number of real ones less one: right for padding on the right."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        place = (attention_mask.to(torch.int64).sum(1) - 1).clamp(min=0)
        picked = x.gather(1, place[:, None, None].expand(-1, 1, x.size(2)))
        return picked.squeeze(1)


@pytest.mark.parametrize(
    ("kind", "padding", "right"),
    siblings(
        [
            (HolesCount, "any", False),
            (HolesCount, "left", True),
            (UnmaskedDecay, "any", False),
            (UnmaskedDecay, "right", True),
            (UnmaskedDecay, "left", True),
            (UnmaskedShift, "left", False),
            (UnmaskedShift, "right", True),
            (LastByNumber, "left", False),
            (LastByNumber, "right", True),
        ],
        quick=2,
    ),
)
def test_only_the_padding_that_is_declared_is_promised(
    kind: type[nn.Module], padding: str, right: bool, tmp_path: Path
) -> None:
    report, artifact = exported(kind(), tmp_path, {"padding": padding})
    assert failing(report) == (set() if right else {Code.PADDING_LEAKS})
    assert artifact.padding == padding
    told = f"padding is promised to change nothing on the {padding} only"
    assert (told in artifact_table(report).note) is (padding != "any")
    families = {c.family for a in report.artifacts for r in a.runtimes for c in r.cases}
    sides = {"right-padding": "right", "left-padding": "left", "inside-padding": "any"}
    tried = {family for family, side in sides.items() if padding in ("any", side)}
    assert families & sides.keys() == tried


class Mha(nn.Module):
    """PyTorch's own: NaN for a sequence without a real token."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        found = self.attention(x, x, x, key_padding_mask=~attention_mask, need_weights=False)
        return torch.as_tensor(found[0])


class Sdpa(nn.Module):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        scores = (x @ x.mT).masked_fill(~attention_mask.unsqueeze(1), float("-inf"))
        return scores.softmax(-1) @ x


class Filled(nn.Module):
    """Padded values enter with weight 0, and 0 times NaN is NaN."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        scores = (x @ x.mT).masked_fill(~attention_mask.unsqueeze(1), -1e9)
        return scores.softmax(-1) @ x


class Selected(nn.Module):
    """The same, with what is padded taken out before anything is computed."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        x = torch.where(attention_mask.unsqueeze(-1), x, 0.0)
        scores = (x @ x.mT).masked_fill(~attention_mask.unsqueeze(1), -1e9)
        return scores.softmax(-1) @ x


@pytest.mark.parametrize("kind", siblings([Sdpa, Mha]))
def test_nan_of_the_module_itself_is_no_fault_of_the_file(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    report, _ = exported(kind(), tmp_path, {})
    assert failing(report) == {Code.NONFINITE_OUTPUT}
    (finding,) = (f for f in report.all_findings() if f.code is Code.NONFINITE_OUTPUT)
    assert "the module itself does so" in finding.message
    assert "empty_rows = false" in finding.message
    assert all(r.blame is None for a in report.artifacts for r in a.runtimes)
    (tmp_path / "declared").mkdir()
    report, _ = exported(kind(), tmp_path / "declared", {"empty_rows": False})
    assert failing(report) == set()


@pytest.mark.parametrize(
    ("kind", "promised", "failed", "note"),
    siblings(
        [
            (Filled, False, set(), {Code.NAN_PADDING}),
            (Filled, True, {Code.PADDING_LEAKS}, set()),
            (Selected, False, set(), set()),
            (Selected, True, set(), set()),
        ],
        quick=2,
    ),
)
def test_nan_in_padded_positions_is_a_note_unless_it_is_promised_away(
    kind: type[nn.Module], promised: bool, failed: set[Code], note: set[Code], tmp_path: Path
) -> None:
    report, artifact = exported(kind(), tmp_path, {}, {"nan_padding": promised})
    assert failing(report) == failed
    assert noted(report) - {Code.PRECISION_LOST} == note
    assert artifact.nan_padding is promised


def test_a_promise_or_a_declaration_without_a_mask_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"promises\.nan_padding: no input is a mask"):
        exported(Scalar(), tmp_path, promises={"nan_padding": True})
    spec = {"inputs": {"x": {"shape": [3], "padding": "right"}}}
    with pytest.raises(UsageError, match=r'padding and empty_rows are of masks: add kind = "mask"'):
        export_module(Scalar(), spec, tmp_path / "out", quiet=True)


class Scalar(nn.Module):
    """As contrastive models return their temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, self.temperature.exp()


class Pairs(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = F.normalize(x.mean(1), dim=-1)
        return rows @ rows.mT


class PairsOfTokens(nn.Module):
    """Every sequence against the tokens of every other one, the second batch axis last."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bnd,cd->bnc", x, x.mean(1))


class Places(nn.Module):
    """An output of places alone: neither rows nor a batch."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(x.size(1), dtype=x.dtype)
        return x * 2, (places.unsqueeze(0) - places.unsqueeze(1)).abs() + 1


@pytest.mark.parametrize("kind", siblings([Scalar, Pairs, PairsOfTokens, Places]))
def test_outputs_without_a_batch_or_with_two(kind: type[nn.Module], tmp_path: Path) -> None:
    report, _ = exported(kind(), tmp_path)
    assert failing(report) == set()


class Standardised(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean((0, 1))) / (x.var((0, 1), correction=0) + 1e-3).sqrt()


class BatchSoftmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(0)


class BatchStatistics(nn.Module):
    """BatchNorm without running statistics takes those of the batch, in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(x.mT)
        return found.mT


@pytest.mark.parametrize("kind", siblings([Standardised, BatchSoftmax, BatchStatistics]))
def test_statistics_over_the_batch_are_said_once_and_blame_nobody(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    report, _ = exported(kind(), tmp_path, sequence="2:40")  # of one number there are none
    assert failing(report) == {Code.BATCH_DEPENDENT}
    assert all(r.blame is None for a in report.artifacts for r in a.runtimes)


class LogNear(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (1 + 0.05 * x).log()


class RootNear(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(1 + 0.05 * x.sum(-1, keepdim=True))


@pytest.mark.parametrize("kind", siblings([LogNear, RootNear]))
def test_hostile_inputs_outside_of_the_domain_are_a_note_unless_finite_is_promised(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    report, _ = exported(kind(), tmp_path)
    assert failing(report) == set()
    assert Code.OUTSIDE_DOMAIN in noted(report)
    (tmp_path / "promised").mkdir()
    report, artifact = exported(kind(), tmp_path / "promised", promises={"finite": True})
    assert failing(report) == {Code.NONFINITE_OUTPUT}
    assert artifact.finite


def test_a_module_that_is_nan_on_usual_inputs_is_told_so(tmp_path: Path) -> None:
    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.log()

    report, _ = exported(Log(), tmp_path)
    assert failing(report) == {Code.NONFINITE_OUTPUT}
    (finding,) = (f for f in report.all_findings() if f.code is Code.NONFINITE_OUTPUT)
    assert "range, positive" in finding.message
