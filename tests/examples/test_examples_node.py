"""``examples/node/run.mjs``: onnxruntime-node on the golden pack."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tools
from folders import alter, change_weight, edit, entry, flip
from golden_runs import ARTIFACT, EXAMPLES, PACK, judge
from linattn_runtime_checks.contract.golden_pack import open_reference

pytestmark = pytest.mark.slow

NODE = EXAMPLES / "node"


@pytest.fixture(scope="module", autouse=True)
def node() -> str:
    tools.node_package(NODE, "onnxruntime-node")
    return tools.program("node", "nodejs")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = ["node", str(NODE / "run.mjs"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def said(line: str) -> tuple[int, float]:
    found = re.fullmatch(
        rf"{ARTIFACT}: (\d+) cases, at most ([\d.]+)x the rounding of an input, 4x allowed\n", line
    )
    assert found is not None, line
    return int(found[1]), float(found[2])


def test_every_case_of_the_golden_pack_passes(masked_folder: Path) -> None:
    done = run(masked_folder)
    assert done.returncode == 0, done.stderr
    count, multiple = said(done.stdout)
    with open_reference(masked_folder / PACK) as pack:
        assert count == len(pack.index.cases)
    assert 0 < multiple <= 4


@pytest.mark.parametrize("name", ["normal-b2-n64", "right-padding-b3-n37"])
def test_the_program_and_the_verdict_agree(masked_folder: Path, tmp_path: Path, name: str) -> None:
    written = tmp_path / "output.raw"
    done = run(masked_folder, "--case", name, "--outputs", written)
    assert done.returncode == 0, done.stderr
    with open_reference(masked_folder / PACK) as pack:
        case = pack.case(name)
        output = np.fromfile(written, dtype=np.float32).reshape(case.batch, case.sequence, 16)
        verdict = judge(pack, case, {"output": output})
    assert verdict.passed, verdict
    count, multiple = said(done.stdout)
    assert count == 1
    assert multiple == pytest.approx(verdict.multiple, abs=6e-4)


def test_a_wrong_weight_is_seen(masked_copy: Path) -> None:
    alter(masked_copy, ARTIFACT, change_weight(lambda largest: 1e-3 * largest))
    done = run(masked_copy, "--artifact", ARTIFACT)
    assert (done.returncode, done.stderr) == (1, "")
    *cases, last = done.stdout.splitlines(keepends=True)
    assert len(cases) > 10
    assert said(last)[1] > 4


def test_a_length_that_was_not_verified_is_refused(masked_copy: Path) -> None:
    edit(masked_copy, lambda m: entry(m, ARTIFACT)["axes"][1].update(verified=[1, 32]))
    done = run(masked_copy, "--case", "normal-b2-n33")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"refused: sequence is 33, but {ARTIFACT} was verified from 1 to 32; "
        "give another size, or build with --dynamic 1:33\n"
    )


def test_other_bytes_are_refused(masked_copy: Path) -> None:
    flip(masked_copy / ARTIFACT / "model.onnx")
    done = run(masked_copy)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"refused: {ARTIFACT}/model.onnx has SHA-256 ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--artifact", "layer/elu/onnx/n16"), "no such ONNX artifact"),
        (("--case", "normal-b9-n9"), "no case normal-b9-n9; the pack has: all-masked-b1-n1, "),
    ],
    ids=["artifact", "case"],
)
def test_what_is_not_there_is_said(
    masked_folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run(masked_folder, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("refused: ")
    assert message in done.stderr
