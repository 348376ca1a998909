"""Modules that cannot be exported: what is said, and that nothing is left behind."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import own_nets
from conftest import CallCli
from linattn_export import export_module
from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.errors import ExportError, LinattnError, UsageError
from own_specs import PAIR, SPEC


def refused(module: Any, spec: dict[str, Any], tmp_path: Path, **options: Any) -> LinattnError:
    output = tmp_path / "out"
    output.mkdir()
    with pytest.raises(LinattnError) as caught:
        export_module(module, spec, output, quiet=True, latency=False, **options)
    assert not list(output.iterdir())
    assert list(tmp_path.iterdir()) == [output]
    return caught.value


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("OverTokens", ExportError, ["axis sequence became fixed to 24", "for index in range"]),
        ("OverBatch", ExportError, ["axis batch became fixed to 6", "for row in x"]),
        ("Branch", ExportError, ["depends on values", "`if x.sum() > 0:`", "torch.where"]),
        ("FrozenLength", UsageError, ["x [5, 11, 8]", "return x + self.places"]),
        ("FewPlaces", ExportError, ["sequence 60", "self.places[torch.arange", "declare only"]),
        ("AlwaysDropout", ExportError, ["differs", "F.dropout(x, 0.5)", "training=self.training"]),
        ("CumulativeProduct", ExportError, ["aten.cumprod", "`return torch.cumprod("]),
        ("CustomOperator", ExportError, ["own_nets.twice", "`found: Tensor = twice(x)`"]),
        ("Noise", ExportError, ["differs", "torch.randn_like(x)", "draw them once"]),
        ("Counter", ExportError, ["writes to its buffer runs"]),
        ("Labels", UsageError, ["'output_1' is int64", "outputs = ['output_0']"]),
        ("EverySecond", UsageError, ["axis 1 of output 'output'", "pad or reshape"]),
        ("Wraps", UsageError, ["output 'output_1' is str", "outputs = ['output_0']"]),
    ],
)
def test_the_reason_names_the_line_and_the_fix(
    name: str, kind: type[Exception], words: list[str], tmp_path: Path
) -> None:
    error = refused(getattr(own_nets, name)(), SPEC, tmp_path)
    assert isinstance(error, kind), error
    assert all(word in str(error) for word in words), error
    if kind is ExportError and name not in ("Counter",):
        assert "own_nets.py:" in str(error)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"y": SPEC["inputs"]["x"]}, ["inputs.y", "Plain.forward has no argument 'y'; it takes x"]),
        ({"x": SPEC["inputs"]["x"], "xx": {"shape": [3]}}, ["inputs.xx", "did you mean 'x'"]),
        ({"x": {"shape": ["batch", "sequence", 8], "dtype": "float16"}}, ["inputs.x.dtype"]),
    ],
)
def test_a_spec_that_contradicts_forward(
    inputs: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    error = refused(own_nets.Plain(), SPEC | {"inputs": inputs}, tmp_path)
    assert isinstance(error, UsageError)
    assert all(word in str(error) for word in words), error


def test_arguments_and_fields_that_are_missing_or_unknown(tmp_path: Path) -> None:
    without = PAIR | {"inputs": {"pair": PAIR["inputs"]["pair"]}}
    error = refused(own_nets.Structured(), without, tmp_path)
    assert "inputs.scale is missing" in str(error)
    wrong = {"pair": {"left": {"shape": [3]}, "rihgt": {"shape": [3]}}, "scale": {"shape": [8]}}
    (tmp_path / "out").rmdir()
    error = refused(own_nets.Structured(), PAIR | {"inputs": wrong, "symbols": {}}, tmp_path)
    assert "inputs.pair.rihgt: Pair has left, right; did you mean 'right'" in str(error)


@pytest.mark.parametrize(
    ("name", "inputs", "promise"),
    [
        ("Image", {"image": {"shape": ["batch", 3, 16, 16]}}, {"causal": True}),
        ("Image", {"image": {"shape": ["batch", 3, 16, 16]}}, {"permutation_equivariant": True}),
        ("Image", {"image": {"shape": ["batch", 3, 16, 16]}}, {"cost": "linear"}),
    ],
)
def test_a_promise_that_nothing_would_check(
    name: str, inputs: dict[str, Any], promise: dict[str, Any], tmp_path: Path
) -> None:
    spec = {"symbols": {"batch": "1:4"}, "inputs": inputs, "promises": promise}
    error = refused(getattr(own_nets, name)(), spec, tmp_path)
    assert f"promises.{next(iter(promise))}: " in str(error)
    assert "leave the promise out" in str(error)


def test_outputs_that_do_not_exist(tmp_path: Path) -> None:
    error = refused(own_nets.Plain(), SPEC | {"outputs": ["output_3"]}, tmp_path)
    assert "outputs names 'output_3'; the module returns output" in str(error)


def test_a_format_that_is_named_must_be_made(tmp_path: Path) -> None:
    error = refused(own_nets.Structured(), PAIR, tmp_path, formats=["torchscript"])
    assert isinstance(error, ExportError)
    assert "cannot be scripted" in str(error)


def test_weights_of_another_dtype(tmp_path: Path) -> None:
    error = refused(nn.Linear(8, 8).double(), SPEC, tmp_path)
    assert "weights of float64, expected float32" in str(error)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("own_nets", "package.module:factory"),
        ("no_such_package.nets:Net", "there is no module 'no_such_package'"),
        ("own_nets:Plane", "did you mean 'Plain'"),
        ("own_nets:raises", r"raised ValueError: no checkpoint here at .*own_nets\.py:"),
        ("own_nets:no_module", "returned int 3"),
        ("own_nets:needs_an_argument", "called without arguments"),
        ("own_nets:number", "is int 3; expected a function or class"),
    ],
)
def test_a_factory_that_cannot_be_used(module: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[inputs.x]\nshape = [2, 3, 8]\n")
    request = BuildRequest(output=tmp_path / "out", module=module, inputs=tmp_path / "x.toml")
    with pytest.raises(UsageError, match=words):
        build(request)
    assert not (tmp_path / "out").exists()


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[inputs.x]\nshape = [4, 2, 8]\n")
    save_file({"mix.weight": torch.zeros(8, 7)}, tmp_path / "w.safetensors")
    request = BuildRequest(
        output=tmp_path / "out",
        module="own_nets:SequenceFirst",
        inputs=tmp_path / "x.toml",
        weights=tmp_path / "w.safetensors",
    )
    with pytest.raises(UsageError, match=r"lacks mix\.bias; mix\.weight has shape \[8, 7\]"):
        build(request)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--module", "own_nets:Plain"], "--module needs --inputs SPEC"),
        (["--inputs", "x.toml"], "--inputs describes the module of --module"),
        (["--module", "own_nets:Plain", "--method", "elu"], "--module and --method exclude"),
        (["--module", "own_nets:Plain", "--batch", "1:3"], "--module and --batch exclude"),
        (["--module", "own_nets:Plain", "--no-mask"], "--module and --mask/--no-mask exclude"),
    ],
)
def test_flags_that_contradict_each_other(
    flags: list[str], words: str, call_cli: CallCli, tmp_path: Path
) -> None:
    done = call_cli("linattn_export", "build", "-o", tmp_path / "out", *flags)
    assert done.returncode == 2
    assert words in done.stderr
