"""adopt(): what is replaced, what is refused, and what of the model stays as it was."""

from importlib import metadata
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import linattn
from fake_peers import WIDTH, WRONG, KernelAttention, StandIn, copied, drawn, table
from linattn_runtime_checks.contract.verdict import K


def model(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *layers)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(1))


def reason(report: linattn.adoption.AdoptReport) -> str:
    assert not report.adopted
    (kept,) = report.kept
    return kept.reason


def test_a_layer_is_replaced_by_ours_with_its_weights() -> None:
    before = model(drawn()).eval()
    x = tokens(2, 9)
    expected = before(x)
    report = linattn.adopt(before, peers=table())
    assert report.model is before
    assert isinstance(before[1], StandIn)
    torch.testing.assert_close(before(x), expected)
    (one,) = report.adopted
    assert (one.paths, one.method) == (("1",), "elu")
    assert 0 < one.roundings <= K
    # Their code casts to float32; run in float64 all the same, nothing is left of the difference.
    assert one.difference < 1e-13


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_stand_in_is_refused(fault: str) -> None:
    before = model(drawn()).eval()
    report = linattn.adopt(before, strict=False, peers=table(WRONG[fault]))
    assert "the output differs by" in reason(report)
    assert isinstance(before[1], KernelAttention)
    found = report.kept[0].roundings
    assert found is not None
    assert found > K


def test_the_reason_of_a_difference_has_its_size_and_where_it_is() -> None:
    report = linattn.adopt(model(drawn()).eval(), peers=table(WRONG["another eps"]))
    assert "at most 4 allowed" in reason(report)
    assert "of a row in float64; 1 tokens" in reason(report)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("leak", "its mask leaks: other values in padding move real tokens by"),
        ("batch", "its output depends on the batch: a sequence alone differs by"),
    ],
)
def test_where_the_original_is_wrong_it_is_told_and_offered(fault: str, told: str) -> None:
    before = model(drawn(fault)).eval()
    report = linattn.adopt(before, peers=table())
    assert told in reason(report)
    assert "strict=False replaces it" in reason(report)
    assert isinstance(before[1], KernelAttention)

    report = linattn.adopt(before, strict=False, peers=table())
    (one,) = report.adopted
    assert told in one.notes[0]
    assert one.roundings <= K
    assert isinstance(before[1], StandIn)


@pytest.mark.parametrize("fault", ["leak", "batch"])
@pytest.mark.parametrize("wrong", ["a weight transposed", "another eps"])
def test_a_fault_of_the_original_excuses_none_of_ours(fault: str, wrong: str) -> None:
    before = model(drawn(fault)).eval()
    report = linattn.adopt(before, strict=False, peers=table(WRONG[wrong]))
    assert "the output differs by" in reason(report)
    assert isinstance(before[1], KernelAttention)


def test_ours_must_not_leak_where_the_original_does_not() -> None:
    report = linattn.adopt(drawn(), strict=False, peers=table(WRONG["the mask ignored"]))
    assert "padding" in reason(report)


def test_a_shared_layer_is_replaced_once_and_stays_shared() -> None:
    layer = drawn()
    before = model(layer, nn.Sequential(layer)).eval()
    report = linattn.adopt(before, peers=table())
    (one,) = report.adopted
    assert one.paths == ("1", "2.0")
    assert before[1] is before[2][0]  # type: ignore[index]


def test_a_model_that_is_itself_a_layer() -> None:
    layer = drawn().eval()
    report = linattn.adopt(layer, peers=table())
    assert isinstance(report.model, StandIn)
    assert "(the model)" in str(report)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_modes_and_types_stay(training: bool, dtype: torch.dtype) -> None:
    before = model(drawn(), nn.Dropout(0.5)).to(dtype).train(training)
    before[1].to_v.requires_grad_(False)
    weights = {name: p.detach().clone() for name, p in before.named_parameters()}
    needs = {name: p.requires_grad for name, p in before.named_parameters()}
    assert linattn.adopt(before, peers=table(copied)).adopted
    assert [part.training for part in before.modules()] == [training] * len([*before.modules()])
    after = dict(before.named_parameters())
    assert after.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(after[name], weight)
        assert after[name].dtype == dtype
        assert after[name].requires_grad == needs[name]


def test_what_stands_in_can_be_trained() -> None:
    before = model(drawn())
    linattn.adopt(before, peers=table(copied))
    before(tokens(2, 5)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in before.parameters())


def test_an_option_that_ours_has_not_is_named() -> None:
    report = linattn.adopt(model(drawn(causal=True)), peers=table())
    assert reason(report) == "causal=True is not supported; supported: False"


def test_hooks_that_are_lost_are_warned_about() -> None:
    before = model(drawn()).eval()
    before[1].register_forward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="1: 1 hooks of the layer that was replaced"):
        report = linattn.adopt(before, peers=table())
    assert report.adopted[0].notes == ("1 hooks of the original are gone",)


def test_a_hook_does_not_act_while_layers_are_compared() -> None:
    calls = []
    before = model(drawn()).eval()
    before[1].register_forward_hook(lambda *_: calls.append(1))
    with pytest.warns(UserWarning, match="hooks"):
        linattn.adopt(before, peers=table())
    assert not calls


def test_a_weight_that_is_tied_to_another_is_not_copied() -> None:
    layer = drawn()
    before = model(layer).eval()
    before[0].weight = layer.to_q.weight
    told = "to_q.weight is also the weight of a Linear"
    assert told in reason(linattn.adopt(before, peers=table(copied)))
    # Where the parameter itself is taken over, it stays tied.
    assert linattn.adopt(before, peers=table()).adopted
    assert before[0].weight is before[1].to_q.weight  # type: ignore[union-attr]


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def changed(kind: str) -> Any:
    layer: Any = drawn().eval()
    if kind == "meta":
        return layer.to("meta")
    if kind == "forward":
        layer.forward = lambda x, mask=None: x
    else:
        parametrize.register_parametrization(layer.to_q, "weight", Doubled())
    return layer


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("meta", "it has no weights"),
        ("forward", "its forward was replaced on the instance"),
        ("parametrized", "its weights are parametrized"),
    ],
)
def test_layers_that_are_not_what_their_class_says(kind: str, told: str) -> None:
    assert told in reason(linattn.adopt(changed(kind), peers=table()))


def test_an_original_that_does_not_run_is_kept() -> None:
    layer: Any = drawn().eval()
    layer.to_out = nn.Linear(3, 3)
    assert "the original cannot be run on the CPU" in reason(linattn.adopt(layer, peers=table()))


def test_a_subclass_is_another_layer() -> None:
    class Other(KernelAttention):
        pass

    report = linattn.adopt(model(Other()), peers=table())
    assert not report.adopted
    assert not report.kept
    assert str(report) == "no attention layer of a known package in this model"


def test_another_version_of_the_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: "2.0")
    report = linattn.adopt(drawn().eval(), peers=table())
    assert report.adopted[0].notes == ("fake-package is 2.0 here; its code was read at 1.0",)


def test_the_report_is_a_table() -> None:
    report = linattn.adopt(model(drawn(), drawn(causal=True)), peers=table())
    head, first, second = str(report).splitlines()
    assert head.split()[:3] == ["where", "layer", "ours"]
    assert "elu" in first
    assert "roundings of the original" in first
    assert "kept" in second
    assert "causal=True" in second


def test_what_is_not_a_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got dict"):
        linattn.adopt({})  # type: ignore[arg-type]
