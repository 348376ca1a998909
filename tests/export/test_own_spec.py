"""SPEC: what is accepted, and errors that name the key."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from linattn_export import export_module
from linattn_export.own.spec import read_spec
from linattn_runtime_checks.contract.errors import UsageError
from own_nets import Plain, Structured
from own_specs import PAIR

X: dict[str, Any] = {"shape": ["batch", "sequence", 8]}
SYMBOLS = {"batch": "1:8", "sequence": "1:40"}


def spec(x: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"symbols": SYMBOLS, "inputs": {"x": x or X}} | more


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        '[symbols]\nbatch = "1:8"\nsequence = 64\n'
        '[inputs.tokens]\ndtype = "int64"\nshape = ["batch", "sequence"]\nrange = [0, 255]\n'
    )
    document = {
        "symbols": {"batch": "1:8", "sequence": 64},
        "inputs": {"tokens": {"dtype": "int64", "shape": ["batch", "sequence"], "range": [0, 255]}},
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    read = [read_spec(tmp_path / name) for name in ("a.toml", "a.json")]
    assert read[0].tables == read[1].tables
    assert read[0].ranges == read[1].ranges
    assert read[0].ranges["sequence"].fixed


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, ["inputs is missing"]),
        ({"inputs": {}}, ["inputs is empty"]),
        (spec(extra=1), ["unknown key extra", "symbols, inputs"]),
        (spec(promises={"cozt": "linear"}), ["promises.cozt", "did you mean 'cost'"]),
        (spec(promises={"cost": "cheap"}), ["promises.cost", "'linear' or 'quadratic'"]),
        (spec(X | {"rnge": [0, 3]}), ["inputs.x.rnge", "did you mean 'range'"]),
        (spec(X | {"dtype": "float64"}), ["inputs.x.dtype", "float32"]),
        (spec(X | {"dtype": "int64"}), ["inputs.x", "needs range"]),
        (spec(X | {"dtype": "int64", "range": [3, 0]}), ["inputs.x", "range is reversed"]),
        (spec(X | {"range": [3.5, 0]}), ["inputs.x", "range is reversed"]),
        (spec(X | {"dtype": "bool"}), ["inputs.x", 'kind = "mask"']),
        (spec(X | {"kind": "mask"}), ["inputs.x", "a mask has shape ['batch', 'sequence']"]),
        (spec(X | {"scale": 0}), ["inputs.x.scale", "greater than 0"]),
        (spec({"shape": ["batch", 0]}), ["inputs.x", "at least one element"]),
        (spec({"shape": ["bach", 8]}), ["inputs.x.shape names 'bach'", "did you mean 'batch'"]),
        (spec({"shape": ["batch", 8]}), ["symbols.sequence", "no input"]),
        (spec(symbols={"batch": "8:1", "sequence": 3}), ["symbols.batch", "reversed", "1:8"]),
        (spec(symbols={"batch": "one", "sequence": 3}), ["symbols.batch", "'one'"]),
        (spec(symbols=SYMBOLS | {"width": 3}), ["symbols.width", "batch and sequence"]),
        (
            {"symbols": SYMBOLS, "inputs": {"a": {"x": X}, "b": {"x": X}}},
            ["two inputs are called 'x'"],
        ),
        ({"symbols": SYMBOLS, "inputs": {"x": 3}}, ["inputs.x must be a table"]),
    ],
)  # fmt: skip
def test_an_error_names_the_key(document: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        read_spec(document)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_file_that_is_not_there_or_is_not_toml(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file: .*x\.toml"):
        read_spec(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_text("[symbols\n")
    with pytest.raises(UsageError, match=r"x\.toml is not TOML: .*line 1"):
        read_spec(tmp_path / "x.toml")
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(UsageError, match="holds no table"):
        read_spec(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"y": torch.zeros(2, 5, 8)}, "holds y; expected a tensor called 'x'"),
        ({"x": torch.zeros(2, 5, 7)}, "7 is outside of 8"),
        ({"x": torch.zeros(2, 50, 8)}, "50 is outside of 1:40"),
        ({"x": torch.zeros(2, 5)}, "does not fit"),
        ({"x": torch.zeros(2, 5, 8, dtype=torch.int64)}, "x is int64, expected float32"),
    ],
)
def test_samples_that_do_not_fit(
    tensors: dict[str, torch.Tensor], words: str, tmp_path: Path
) -> None:
    save_file(tensors, tmp_path / "real.safetensors")
    (tmp_path / "x.json").write_text(json.dumps(spec(X | {"samples": "real.safetensors"})))
    with pytest.raises(UsageError, match=rf"inputs\.x\.samples: .*{words}"):
        export_module(Plain(), tmp_path / "x.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_samples_of_several_inputs_belong_together(tmp_path: Path) -> None:
    save_file(
        {"left": torch.zeros(2, 5, 8), "right": torch.zeros(3, 5, dtype=torch.int32) + 4},
        tmp_path / "real.safetensors",
    )
    document = json.loads(json.dumps(PAIR))
    for name in ("left", "right"):
        document["inputs"]["pair"][name]["samples"] = "real.safetensors"
    (tmp_path / "x.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"right\.samples: batch is 3, but 2 in those of left"):
        export_module(Structured(), tmp_path / "x.json", tmp_path / "out")
