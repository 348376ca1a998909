"""The programs of ``repro/``, run: on the artifact that is wrong, and on the one that is right."""

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from conftest import Outcome
from folders import edit, entry, only, restamp
from linattn_export import export_module
from linattn_export.formats import FORMATS
from linattn_runtime_checks.blame.program import program_text
from linattn_runtime_checks.blame.repro import write_repro
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.integrity import stored
from linattn_runtime_checks.contract.manifest import Artifact, read
from linattn_runtime_checks.contract.verdict import Error, compare
from linattn_runtime_checks.judging.folder import CheckRequest, check_folder
from linattn_runtime_checks.results.report import CaseResult, RuntimeResult
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Runtime, Session, SessionOptions, Tensors

SPEC: dict[str, Any] = {
    "symbols": {"batch": "1:4", "sequence": "1:12"},
    "inputs": {"x": {"shape": ["sequence", "batch", 8]}},
}
WRONG = [Code.PARITY_EXCEEDED, Code.NONFINITE_MISMATCH, Code.ZERO_ROW_NOT_ZERO, Code.SHAPE_MISMATCH]


class Net(nn.Module):
    """Two outputs, whose batch is not the same axis; the second rounds far more than the first."""

    def __init__(self, second: float) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.mix = nn.Linear(8, 8)
        self.gain = nn.Parameter(torch.full((8,), second))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, (torch.tanh(self.mix(x)) * self.gain).mean(0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same module in all formats, right and with a wrong second output; not to be changed."""
    place = tmp_path_factory.mktemp("two")
    for name, second in (("right", 1.0), ("wrong", 1.05)):
        export_module(
            Net(second), SPEC, place / name, name="net", check=False, latency=False, quiet=True
        )
    return place / "right", place / "wrong"


def made_wrong(folders: tuple[Path, Path], name: str, place: Path) -> Path:
    """A folder of one artifact, which is the wrong one."""
    right, wrong = folders
    folder = Path(shutil.copytree(right, place / "folder"))
    only(folder, name)
    path = entry_of(folder).path
    shutil.copyfile(wrong / path, folder / path)
    restamp(folder, name)
    return folder


def entry_of(folder: Path) -> Artifact:
    (artifact,) = read(folder).artifacts
    return artifact


def judged(folder: Path, repro: Path) -> list[Path]:
    """What the checks write of a folder, on the runtimes that there are."""
    request = CheckRequest(latency=False, quiet=True, isolate=False, repro=repro)
    check_folder(folder, read(folder), request)
    return sorted(repro.iterdir()) if repro.is_dir() else []


def run(place: Path) -> Outcome:
    command = [sys.executable, str(place / "repro.py")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow if k != "onnx" else ()) for k in FORMATS]
)
def test_the_program_of_every_format(kind: str, folders: tuple[Path, Path], tmp_path: Path) -> None:
    name = f"net/own/{kind}/dynamic"
    places = judged(made_wrong(folders, name, tmp_path), tmp_path / "repro")
    runtimes = [r for r in RUNTIMES.values() if kind in r.formats and r.unavailable() is None]
    assert len(places) == len(runtimes) > 0, "one on each runtime that takes the format"
    for place in places:
        with np.load(place / "inputs.npz") as inputs, np.load(place / "expected.npz") as expected:
            length = inputs["x"].shape[0]
            assert inputs["x"].shape == (length, 1, 8), "one sequence of the batch"
            assert [expected[key].shape for key in expected] == [(length, 1, 8), (1, 8)]
        there = run(place)
        assert there.returncode == 1, there.stderr
        first, _, last = there.stdout.partition("output_1")
        assert "right" in first
        assert "wrong by more than rounding explains" in last
        assert there.stdout.splitlines()[-1] == "the fault is there"
        (artifact,) = [a for a in read(folders[0]).artifacts if a.id == name]
        shutil.copyfile(folders[0] / artifact.path, place / Path(artifact.path).name)
        gone = run(place)
        assert (gone.returncode, gone.stdout.splitlines()[-1]) == (0, "the fault is gone")
        (place / Path(artifact.path).name).write_bytes(b"no artifact")
        failed = run(place)
        assert failed.returncode == 2, "what cannot be run is no fault that is there"
        assert "says nothing about the fault" in failed.stdout


def test_side_files_lie_beside_it(folders: tuple[Path, Path], tmp_path: Path) -> None:
    name = "net/own/onnx/dynamic"
    folder = made_wrong(folders, name, tmp_path)
    path = folder / entry_of(folder).path
    onnx.save(
        onnx.load(path), path, save_as_external_data=True, location="model.data", size_threshold=64
    )
    restamp(folder, name)
    beside = stored(folder, f"{name}/model.data").model_dump()
    edit(folder, lambda d: entry(d, name).update(side_files=[beside]))
    for place in judged(folder, tmp_path / "repro"):
        assert (place / "model.data").read_bytes() == (path.parent / "model.data").read_bytes()
        assert run(place).returncode == 1, "it is run with the weights of the side file"
    assert list((tmp_path / "repro").iterdir())


def written(runtime: Runtime, folders: tuple[Path, Path], name: str, place: Path) -> Path | None:
    """The program for ``runtime``, from the result of another that does run here."""
    folder = made_wrong(folders, name, place)
    artifact = entry_of(folder)
    (there,) = [r for r in RUNTIMES.values() if artifact.format in r.formats and not r.unavailable()
                and r.name != "ort-cuda"][:1]  # fmt: skip
    session = there.open(
        folder / artifact.path, artifact, SessionOptions(mode=there.modes[-1], threads=1)
    )
    with open_reference(folder / artifact.reference) as pack:
        case = min(pack.index.cases, key=lambda case: case.batch * case.sequence)
        outcome = CaseResult(
            mode=runtime.modes[-1], case=case.name, family=case.family, batch=case.batch,
            sequence=case.sequence, code=Code.PARITY_EXCEEDED, message="made up",
        )  # fmt: skip
        result = RuntimeResult(runtime=runtime.name, cases=[outcome])
        return write_repro(
            place / "repro", result, artifact, [pack], session, folder / artifact.path
        )


class OneWrong:
    """A session that gets the second output of one sequence of the batch wrong."""

    def __init__(self, session: Session, wrong: NDArray[Any]) -> None:
        self._session, self._wrong = session, wrong

    def run(self, inputs: Tensors) -> Tensors:
        outputs = self._session.run(inputs)
        for index in range(inputs["x"].shape[1]):
            if np.array_equal(inputs["x"][:, index], self._wrong):
                outputs["output_1"][index] *= 1.01
        return outputs


def of_three(
    folder: Path, name: str, place: Path, wrap: Callable[[Session, NDArray[Any]], Session]
) -> tuple[Path, NDArray[Any]]:
    """The repro of a case of three sequences, by a session that ``wrap`` changes, and its ``x``."""
    (artifact,) = [a for a in read(folder).artifacts if a.id == name]
    (runtime,) = [r for r in RUNTIMES.values() if artifact.format in r.formats][:1]
    path, mode = folder / artifact.path, runtime.modes[-1]
    with open_reference(folder / artifact.reference) as pack:
        case = next(c for c in pack.index.cases if c.batch == 3 and c.family == "normal")
        x = pack.inputs(case)["x"]
        outcome = CaseResult(
            mode=mode, case=case.name, family=case.family, batch=case.batch,
            sequence=case.sequence, code=Code.PARITY_EXCEEDED,
        )  # fmt: skip
        result = RuntimeResult(runtime=runtime.name, cases=[outcome])
        session = runtime.open(path, artifact, SessionOptions(mode=mode, threads=1))
        made = write_repro(place, result, artifact, [pack], wrap(session, x), path)
    assert made is not None
    return made, x


def test_the_sequence_that_is_wrong_is_cut_out(folders: tuple[Path, Path], tmp_path: Path) -> None:
    def last_wrong(session: Session, x: NDArray[Any]) -> Session:
        return cast(Session, OneWrong(session, x[:, 2]))

    place, x = of_three(folders[0], "net/own/onnx/dynamic", tmp_path, last_wrong)
    with np.load(place / "inputs.npz") as inputs, np.load(place / "got.npz") as got:
        assert np.array_equal(inputs["x"], x[:, [2]])
        assert got["output_1"].shape == (1, 8)
    assert run(place).returncode == 0, "the file itself is right"


class Scaled:
    """A session that gets everything wrong."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, inputs: Tensors) -> Tensors:
        return {
            name: np.asarray(x * 1.05, dtype=x.dtype)
            for name, x in self._session.run(inputs).items()
        }


class BatchLast(nn.Module):
    """A number for each token and sequence: the rows of the output run over the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh().sum(-1)


def test_a_batch_that_is_the_last_axis_stays_whole(tmp_path: Path) -> None:
    """The yardstick is of rows that one sequence alone does not have."""
    export_module(
        BatchLast(), SPEC, tmp_path / "out", name="net", formats=["pt2"],
        check=False, latency=False, quiet=True,
    )  # fmt: skip

    def all_wrong(session: Session, x: NDArray[Any]) -> Session:
        return cast(Session, Scaled(session))

    place, x = of_three(tmp_path / "out", "net/own/pt2/dynamic", tmp_path, all_wrong)
    with np.load(place / "inputs.npz") as inputs:
        assert np.array_equal(inputs["x"], x)


def test_the_program_of_cuda_runs_on_cuda_or_says_that_it_does_not(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    cuda = RUNTIMES["ort-cuda"]
    place = written(cuda, folders, "net/own/onnx/dynamic", tmp_path)
    assert place is not None
    done = run(place)
    if cuda.unavailable() is None:
        assert done.returncode == 1, done.stderr
    else:
        assert done.returncode == 2, done.stdout
        assert "CUDAExecutionProvider was asked for" in done.stderr


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A runtime of a format of its own, which generic code knows from its record only."""
    runtime = dataclasses.replace(
        RUNTIMES["pt2"], name="toy", modes=("slow", "usual"), program="outputs = {'output_0': 3}"
    )
    monkeypatch.setitem(RUNTIMES, "toy", runtime)
    return runtime


def test_a_new_runtime_brings_its_own_lines(
    toy: Runtime, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    place = written(toy, folders, "net/own/pt2/dynamic", tmp_path)
    assert place is not None
    assert "    outputs = {'output_0': 3}\n" in (place / "repro.py").read_text()
    silent = dataclasses.replace(toy, program=None)
    RUNTIMES["toy"] = silent
    assert written(silent, folders, "net/own/pt2/dynamic", tmp_path / "silent") is None


def changed(kind: str, random: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """An output of the named kind, and what it should be."""
    want = random.standard_normal((3, 4))
    if kind == "tiny":
        want *= 1e-42
    if kind == "number":
        want = want[0, 0]
    if kind in ("zero", "zero broken"):
        want[1] = 0.0
    if kind in ("infinite", "infinite broken"):
        want[2, 1] = np.inf
    got = np.asarray(want * (1 + 1e-6 * random.standard_normal(want.shape)), dtype=np.float32)
    if kind == "zero broken":
        got[1, 2] = 1e-30
    if kind == "infinite broken":
        got[2, 1] = -np.inf
    if kind == "shape":
        got = got[:, :2]
    if kind == "row":
        got[1] *= 1 + 2e-5
    if kind == "whole":
        got *= 1 + 5e-6
    return got, np.asarray(want)


@pytest.mark.parametrize(
    "kind",
    ["plain", "tiny", "number", "zero", "zero broken", "infinite", "infinite broken",
     "shape", "row", "whole", "inconclusive", "unknown"],
)  # fmt: skip
def test_the_program_judges_as_the_verdict_does(kind: str) -> None:
    allowed = {"inconclusive": Error(row=0.1, whole=0.1), "whole": Error(row=1e-5, whole=2e-7),
               "unknown": Error(row=np.inf, whole=np.inf)}  # fmt: skip
    error = allowed.get(kind, Error(row=1e-6, whole=1e-6))
    text = program_text(
        'it\'s "quoted" \\', file="f", inputs=["x"], outputs=["y"], rounding={"y": error}, run="a"
    )
    names: dict[str, Any] = {"__file__": "repro.py", "__name__": "repro"}
    exec(compile(text, "repro.py", "exec"), names)
    assert names["ROUNDING"] == {"y": (error.row, error.whole)}
    random = np.random.default_rng(0)
    seen = set()
    for _ in range(20):
        got, want = changed(kind, random)
        expected = compare(got, want, str(got.dtype), error).code
        found = names["fault_in"](got, want, *names["ROUNDING"]["y"])
        assert (found is not None) == (expected in WRONG), (kind, expected, found)
        seen.add(expected)
    assert seen, "compared"
    if kind in ("zero broken", "infinite broken", "shape", "row", "whole"):
        assert seen <= set(WRONG), "a fault that the verdict sees"
