"""Calls of ``build``, and a folder of prepared files that it must not damage."""

import shlex
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from conftest import Outcome
from linattn_models import MODELS, ModelOptions

EXPORT = "linattn_export"


# A build of a second or two.
TINY = (
    "-m elu -f torchscript -f pt2 --no-fixed --dynamic 2:8 --batch 1:2 --d-model 8 --heads 2 "
    "--no-latency -q"
)


SMALL = "-m elu --d-model 8 --heads 2 -n 4 --dynamic 1:8"


def state() -> dict[str, Tensor]:
    """The weights that the builds of ``SMALL`` take."""
    options = ModelOptions(method="elu", d_model=8, heads=2)
    return MODELS["layer"].build(options).state_dict()


MISSING = min(state())


def prepare(small_folder: Path, tmp_path: Path) -> Path:
    """A folder with a previous output, a file, a folder of someone else's and bad weights."""
    shutil.copytree(small_folder, tmp_path / "previous")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("theirs")
    good = state()
    save_file(good, tmp_path / "good.safetensors")
    whole = (tmp_path / "good.safetensors").read_bytes()
    (tmp_path / "text.safetensors").write_text("these are not weights")
    (tmp_path / "truncated.safetensors").write_bytes(whole[:-10])
    (tmp_path / "empty.safetensors").write_bytes(b"")
    lacking = {name: tensor for name, tensor in good.items() if name != MISSING}
    save_file(lacking, tmp_path / "lacking.safetensors")
    save_file(good | {"stray": torch.zeros(1)}, tmp_path / "extra.safetensors")
    save_file(good | {MISSING: torch.zeros(3)}, tmp_path / "shape.safetensors")
    save_file(good | {MISSING: good[MISSING].long()}, tmp_path / "integers.safetensors")
    return tmp_path


def words(args: str, here: Path) -> list[str]:
    """The command line of ``args``, writing over the previous output unless it says otherwise."""
    return ["build", "-o", str(here / "previous"), *shlex.split(args.replace("{here}", str(here)))]


def assert_refused(done: Outcome, code: int, says: tuple[str, ...], here: Path) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in says:
        assert part.replace("{here}", str(here)).replace("{missing}", MISSING) in done.stderr
