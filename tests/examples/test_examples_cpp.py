"""``examples/cpp``: libtorch on the golden pack of a TorchScript artifact."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import tools
from conftest import BuildOnce
from folders import edit, entry, flip, only, restamp
from golden_runs import EXAMPLES, PACK, SCRIPT, judge, masked
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.manifest import FILE_NAME

pytestmark = pytest.mark.slow

Done = subprocess.CompletedProcess[str]


def called(*command: object) -> Done:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built as its CMakeLists.txt says."""
    if torch.version.cuda is not None and shutil.which("nvcc") is None:
        pytest.skip("this PyTorch is built for CUDA: its CMake files ask for the CUDA toolkit")
    cmake = tools.program("cmake", "cmake")
    for name, package in (("make", "make"), ("c++", "g++")):
        tools.program(name, package)
    for header, package in (
        ("nlohmann/json.hpp", "nlohmann-json3-dev"),
        ("openssl/evp.h", "libssl-dev"),
    ):
        if not Path("/usr/include", header).is_file():
            tools.missing(f"no {header}; on Debian: apt-get install {package}")
    folder = tmp_path_factory.mktemp("cpp")
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for step in (("-S", EXAMPLES / "cpp", "-B", folder, prefix), ("--build", folder)):
        done = called(cmake, *step)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def scripted(build_once: BuildOnce) -> Path:
    return build_once(masked("torchscript"))


@pytest.fixture
def scripted_copy(scripted: Path, tmp_path: Path) -> Path:
    for name in (FILE_NAME, PACK, f"{SCRIPT}/model.pt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((scripted / name).read_bytes())
    return tmp_path


def said(line: str) -> tuple[int, float]:
    found = re.fullmatch(
        rf"{SCRIPT}: (\d+) cases, at most ([\d.]+)x the rounding of an input, 4x allowed\n", line
    )
    assert found is not None, line
    return int(found[1]), float(found[2])


def test_every_case_of_the_golden_pack_passes(program: Path, scripted: Path) -> None:
    done = called(program, scripted)
    assert done.returncode == 0, done.stderr
    count, multiple = said(done.stdout)
    with open_reference(scripted / PACK) as pack:
        assert count == len(pack.index.cases)
    assert 0 < multiple <= 4


@pytest.mark.parametrize("name", ["normal-b2-n64", "right-padding-b3-n37"])
def test_the_program_and_the_verdict_agree(
    program: Path, scripted: Path, tmp_path: Path, name: str
) -> None:
    done = called(program, scripted, SCRIPT, name, tmp_path / "output.raw")
    assert done.returncode == 0, done.stderr
    with open_reference(scripted / PACK) as pack:
        case = pack.case(name)
        shape = (case.batch, case.sequence, 16)
        output = np.fromfile(tmp_path / "output.raw", dtype=np.float32).reshape(shape)
        verdict = judge(pack, case, {"output": output})
    assert verdict.passed, verdict
    count, multiple = said(done.stdout)
    assert count == 1
    assert multiple == pytest.approx(verdict.multiple, abs=6e-4)


def test_a_wrong_weight_is_seen(program: Path, scripted_copy: Path) -> None:
    only(scripted_copy, SCRIPT)
    path = str(scripted_copy / SCRIPT / "model.pt")
    module = torch.jit.load(path)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        next(parameter for parameter in module.parameters() if parameter.dim() == 2)[3, 5] += 1e-3
    module.save(path)
    restamp(scripted_copy, SCRIPT)
    done = called(program, scripted_copy)
    assert (done.returncode, done.stderr) == (1, "")
    *cases, last = done.stdout.splitlines(keepends=True)
    assert len(cases) > 10
    assert said(last)[1] > 4


@pytest.mark.parametrize(
    ("axis", "name", "value"), [(1, "sequence", 33), (0, "batch", 2)], ids=["sequence", "batch"]
)
def test_a_size_that_was_not_verified_is_refused(
    program: Path, scripted_copy: Path, axis: int, name: str, value: int
) -> None:
    edit(scripted_copy, lambda m: entry(m, SCRIPT)["axes"][axis].update(verified=[1, value - 1]))
    done = called(program, scripted_copy, "", "normal-b2-n33")
    assert (done.returncode, done.stdout) == (1, "")
    flag = {"sequence": "--dynamic", "batch": "--batch"}[name]
    assert done.stderr == (
        f"refused: {name} is {value}, but {SCRIPT} was verified from 1 to {value - 1}; "
        f"give another size, or build with {flag} 1:{value}\n"
    )


def test_other_bytes_are_refused(program: Path, scripted_copy: Path) -> None:
    flip(scripted_copy / SCRIPT / "model.pt")
    done = called(program, scripted_copy)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"refused: {SCRIPT}/model.pt has SHA-256 ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("layer/elu/torchscript/n16",), "has no TorchScript artifact layer/elu/torchscript/n16"),
        (("", "normal-b9-n9"), "the golden pack has no case normal-b9-n9"),
    ],
    ids=["artifact", "case"],
)
def test_what_is_not_there_is_said(
    program: Path, scripted: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = called(program, scripted, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("refused: ")
    assert message in done.stderr
