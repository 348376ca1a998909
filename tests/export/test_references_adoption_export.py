"""Models of public packages, random and trained: what their export does, and after adopt().

The same in a shell: ``linattn-export build --module FILE:make --inputs SPEC -f onnx``.
"""

import copy
from pathlib import Path

import pytest
import torch
from torch.jit.frontend import NotSupportedError

import linattn
from adopted_models import CASES, drawn, sample
from linattn_export import export_module
from linattn_runtime_checks.contract.errors import ExitCode, ExportError
from linattn_runtime_checks.contract.verdict import K

pytestmark = pytest.mark.references

each_case = pytest.mark.parametrize("name", CASES)
each_weights = pytest.mark.parametrize("trained", [False, True], ids=["random", "trained"])


def written(model: torch.nn.Module, name: str, folder: Path) -> ExitCode:
    report = export_module(
        model,
        CASES[name].inputs,
        folder,
        formats=("onnx",),
        runtimes=("ort-cpu",),
        latency=False,
        quiet=True,
    )
    return ExitCode(report.exit_code)


@each_case
def test_what_the_export_of_the_original_does(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    original = drawn(name, trained=False)
    if not case.refused:
        assert written(original, name, tmp_path / "out") is ExitCode.PASS
        return
    with pytest.raises(ExportError, match=case.refused):
        written(original, name, tmp_path / "out")


def test_where_onnx_takes_the_original_torchscript_does_not() -> None:
    """But for timm's, which both take: there, ours changes nothing that an export needs."""
    takes = [name for name, case in CASES.items() if not case.refused]
    assert takes == ["taylor-series-linear-attention", "timm"]
    original = drawn(takes[0], trained=False)
    with pytest.raises(NotSupportedError, match="lambda"):  # that cuts heads with einops
        torch.jit.script(original)


def adopted(name: str, *, trained: bool) -> torch.nn.Module:
    report = linattn.adopt(drawn(name, trained=trained), strict=CASES[name].strict)
    assert report.adopted, str(report)
    assert not report.kept, str(report)
    assert max(one.roundings for one in report.adopted) <= K
    return report.model


@each_case
def test_every_layer_of_random_weights_is_replaced(name: str) -> None:
    adopted(name, trained=False)


@each_case
def test_after_adopt_it_is_written_and_passes(name: str, tmp_path: Path) -> None:
    """Of trained weights, which are what people export."""
    assert written(adopted(name, trained=True), name, tmp_path / "out") is ExitCode.PASS


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.strict])
@each_weights
def test_the_whole_model_says_what_it_said(name: str, trained: bool) -> None:
    original = drawn(name, trained=trained)
    model = linattn.adopt(copy.deepcopy(original)).model
    for length in (1, 7, 64):
        inputs = sample(name, 2, length)
        with torch.no_grad():
            torch.testing.assert_close(model(**inputs), original(**inputs), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.strict])
def test_strict_keeps_what_is_wrong_and_says_so(name: str) -> None:
    report = linattn.adopt(drawn(name, trained=False))
    reasons = [one.reason for one in report.kept]
    assert reasons
    assert all("strict=False replaces it" in reason for reason in reasons)
