"""Weights from a file: what people save fits, and what does not is told why."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from linattn_export.subjects.weights import load_weights
from linattn_runtime_checks.contract.errors import UsageError


class Tied(nn.Module):
    """Two names of one tensor, and buffers of every kind."""

    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 5, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.register_buffer("order", torch.randperm(5).to(torch.int32))
        self.register_buffer("keep", torch.rand(5) > 0.5)
        self.register_buffer("unkept", torch.rand(2), persistent=False)


class ExtraState(nn.Module):
    """Keeps something that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(2, 2)

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None:
        raise AssertionError("the file holds none")


def same(one: nn.Module, other: nn.Module) -> bool:
    states = [
        {n: x for n, x in module.state_dict().items() if isinstance(x, Tensor)}
        for module in (one, other)
    ]
    return all(torch.equal(x, states[1][name]) for name, x in states[0].items())


def in_full(module: nn.Module, path: Path) -> None:
    save_file({n: x.clone() for n, x in module.state_dict().items() if isinstance(x, Tensor)}, path)


def as_a_model(module: nn.Module, path: Path) -> None:
    save_model(module, str(path))


def without_counters(module: nn.Module, path: Path) -> None:
    state = {n: x for n, x in module.state_dict().items() if not n.endswith("batches_tracked")}
    save_file({n: x.clone() for n, x in state.items() if isinstance(x, Tensor)}, path)


@pytest.mark.parametrize("save", [in_full, as_a_model, without_counters])
@pytest.mark.parametrize("tied", [True, False])
def test_what_people_save_fits(save: Any, tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(1)
    saved, loaded = Tied(tied=tied), Tied(tied=tied)
    assert not same(saved, loaded)
    save(saved, tmp_path / "w.safetensors")
    load_weights(loaded, tmp_path / "w.safetensors", "the module")
    assert same(saved, loaded)
    assert (loaded.head.weight is loaded.embed.weight) == tied


def test_the_metadata_may_say_which_names_are_tied(tmp_path: Path) -> None:
    """Also where the module that is loaded keeps two tensors."""
    save_model(Tied(), str(tmp_path / "w.safetensors"))
    loaded = Tied(tied=False)
    load_weights(loaded, tmp_path / "w.safetensors", "the module")
    assert torch.equal(loaded.head.weight, loaded.embed.weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floating_point_numbers_are_converted(dtype: torch.dtype, tmp_path: Path) -> None:
    saved, loaded = nn.Linear(3, 3).to(dtype), nn.Linear(3, 3)
    in_full(saved, tmp_path / "w.safetensors")
    load_weights(loaded, tmp_path / "w.safetensors", "the module")
    assert loaded.weight.dtype == torch.float32
    assert torch.equal(loaded.weight, saved.weight.float())


def test_a_state_that_is_no_tensor_is_left_alone(tmp_path: Path) -> None:
    saved, loaded = ExtraState(), ExtraState()
    in_full(saved, tmp_path / "w.safetensors")
    load_weights(loaded, tmp_path / "w.safetensors", "the module")
    assert same(saved, loaded)


STATE = {n: x.clone() for n, x in Tied().state_dict().items()}


def changed(**tensors: Tensor) -> dict[str, Tensor]:
    return STATE | {name.replace("__", "."): x for name, x in tensors.items()}


def renamed(prefix: str) -> dict[str, Tensor]:
    return {prefix + name: x for name, x in STATE.items()}


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (changed(order=torch.rand(5)), "order has dtype float32, expected int32"),
        (changed(order=torch.ones(5, dtype=torch.bool)), "order has dtype bool, expected int32"),
        (changed(order=torch.full((5,), 2**40)), "order holds numbers that are too large for int3"),
        (changed(keep=torch.ones(5, dtype=torch.int64)), "keep has dtype int64, expected bool"),
        (
            changed(embed__weight=torch.ones(5, 4, dtype=torch.int8)),
            "embed.weight has dtype int8, expected float32",
        ),
        (
            changed(embed__weight=torch.ones(5, 4)),
            "embed.weight and head.weight are one tensor in the module, and differ in the file",
        ),
        (changed(embed__weight=torch.ones(4, 4)), "embed.weight has shape [4, 4], expected [5, 4]"),
        (
            changed(unkept=torch.ones(2)),
            "it has also unkept, buffers that the module does not keep (persistent=False)",
        ),
        (renamed("module."), "strip 'module.' from its names"),
        (renamed("_orig_mod."), "strip '_orig_mod.' from its names"),
        ({n: x for n, x in STATE.items() if n != "keep"}, "it lacks keep"),
    ],
)
def test_what_does_not_fit_is_told_why(
    tensors: dict[str, Tensor], words: str, tmp_path: Path
) -> None:
    save_file(tensors, tmp_path / "w.safetensors")
    module = Tied()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    with pytest.raises(UsageError) as caught:
        load_weights(module, tmp_path / "w.safetensors", "the module")
    assert words in str(caught.value)
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())


def test_names_may_lack_the_prefix_of_a_wrapper(tmp_path: Path) -> None:
    wrapped = nn.ModuleDict({"module": nn.Linear(2, 2)})
    in_full(nn.Linear(2, 2), tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=r"put 'module\.' before its names"):
        load_weights(wrapped, tmp_path / "w.safetensors", "the module")


def test_other_files_name_the_fix(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "w.pt")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    for name, words in {
        "w.pt": r"not a safetensors file .*load it with torch\.load into the module.*save_file",
        "model.safetensors.index.json": r"not one file of weights; .*load the parts .*save_file",
        ".": r"not one file of weights",
        "none.safetensors": "no such weights file",
    }.items():
        with pytest.raises(UsageError, match=words):
            load_weights(nn.Linear(2, 2), tmp_path / name, "the module")
