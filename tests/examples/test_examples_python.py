"""``examples/run_onnx.py``: without torch or anything of ours, and only on what was verified."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from folders import edit, entry, flip
from golden_runs import ARTIFACT, EXAMPLES, LONGEST, MOST, PACK, judge
from linattn_runtime_checks.contract.golden_pack import Tensors, open_reference
from linattn_runtime_checks.contract.manifest import FILE_NAME
from siblings import siblings

EXAMPLE = EXAMPLES / "run_onnx.py"
MISSING = ("torch", "linattn", "linattn_models", "linattn_export", "linattn_runtime_checks")
ALONE = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({MISSING!r}))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The example where nothing but onnxruntime and numpy can be imported."""
    command = [sys.executable, "-c", ALONE, str(EXAMPLE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def inputs(batch: int = 2, sequence: int = 8) -> Tensors:
    return {
        "hidden_states": np.ones((batch, sequence, 16), dtype=np.float32),
        "attention_mask": np.ones((batch, sequence), dtype=np.bool_),
    }


@pytest.mark.parametrize(
    "name", siblings(["right-padding-b3-n37", "normal-b2-n64", "all-masked-b3-n37"])
)
def test_the_outputs_are_those_of_the_golden_pack(
    masked_folder: Path, tmp_path: Path, name: str
) -> None:
    with open_reference(masked_folder / PACK) as pack:
        case = pack.case(name)
        np.savez(tmp_path / "in.npz", **pack.inputs(case))  # type: ignore[arg-type]
        files = ["--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz"]
        done = run(masked_folder, "--artifact", ARTIFACT, *files)
        assert done.returncode == 0, done.stderr
        shape = f"output [{case.batch}, {case.sequence}, 16] float32\n"
        assert (
            done.stdout == f"{shape}{ARTIFACT}, verified for batch 1:{MOST}, sequence 1:{LONGEST}\n"
        )
        outputs = dict(np.load(tmp_path / "out.npz"))
        verdict = judge(pack, case, outputs)
        assert verdict.passed, verdict
        outputs["output"][1, 3, 5] += 1e-4
        assert not judge(pack, case, outputs).passed


def test_random_inputs_are_enough_for_a_first_look(masked_folder: Path) -> None:
    done = run(masked_folder, "--batch", 3, "--sequence", 5)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("output [3, 5, 16] float32\n")


REFUSALS = {
    "sequence": (
        inputs(sequence=LONGEST + 1),
        f"sequence is {LONGEST + 1}, but {ARTIFACT} was verified from 1 to {LONGEST}; "
        f"give another size, or build with --dynamic 1:{LONGEST + 1}",
    ),
    "batch": (
        inputs(batch=MOST + 1),
        f"batch is {MOST + 1}, but {ARTIFACT} was verified from 1 to {MOST}; "
        f"give another size, or build with --batch 1:{MOST + 1}",
    ),
    "nothing": (
        inputs(sequence=0),
        f"sequence is 0, but {ARTIFACT} was verified from 1 to {LONGEST}",
    ),
    "dtype": (
        inputs() | {"hidden_states": np.ones((2, 8, 16))},
        "hidden_states is float64, expected float32; use hidden_states.astype('float32')",
    ),
    "width": (
        inputs() | {"hidden_states": np.ones((2, 8, 15), dtype=np.float32)},
        "hidden_states has shape [2, 8, 15], expected ['batch', 'sequence', 16]",
    ),
    "rank": (
        inputs() | {"attention_mask": np.ones(8, dtype=np.bool_)},
        "attention_mask has shape [8], expected ['batch', 'sequence']",
    ),
    "mask of another length": (
        inputs() | {"attention_mask": np.ones((2, 7), dtype=np.bool_)},
        "attention_mask has shape [2, 7]: sequence is 8 in hidden_states",
    ),
    "no mask": (
        {"hidden_states": inputs()["hidden_states"]},
        "got inputs ['hidden_states'], expected ['attention_mask', 'hidden_states']",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_was_not_verified_is_refused(masked_folder: Path, tmp_path: Path, what: str) -> None:
    given, message = REFUSALS[what]
    np.savez(tmp_path / "in.npz", **given)  # type: ignore[arg-type]
    done = run(masked_folder, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"refused: {message}")
    assert not (tmp_path / "out.npz").exists()


def copied(folder: Path, target: Path) -> Path:
    """The manifest and the ONNX file of ``folder``, which is all that an application ships."""
    for name in (FILE_NAME, f"{ARTIFACT}/model.onnx"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes((folder / name).read_bytes())
    return target


def test_other_bytes_are_refused(masked_folder: Path, tmp_path: Path) -> None:
    shipped = copied(masked_folder, tmp_path)
    assert run(shipped).returncode == 0
    flip(shipped / ARTIFACT / "model.onnx")
    done = run(shipped)
    assert done.returncode == 1
    assert done.stderr.startswith(f"refused: {ARTIFACT}/model.onnx has SHA-256 ")
    manifest = json.loads((shipped / FILE_NAME).read_text())
    assert f"the manifest says {entry(manifest, ARTIFACT)['sha256']}; copy" in done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: entry(m, ARTIFACT).update(verdict="PARITY"), f"{ARTIFACT} is PARITY, not PASS"),
        (lambda m: m.update(schema_version="2.0"), "manifest 2.0 is not 1.x"),
        (lambda m: entry(m, ARTIFACT).update(format="pt2"), "has no ONNX artifact None; it has: "),
        (
            lambda m: [axis.update(verified=None) for axis in entry(m, ARTIFACT)["axes"]],
            "no size of batch was verified; run linattn-check on the folder",
        ),
    ],
    ids=["verdict", "schema", "format", "unverified"],
)
def test_a_manifest_that_vouches_for_nothing_is_refused(
    masked_folder: Path, tmp_path: Path, change: object, message: str
) -> None:
    shipped = copied(masked_folder, tmp_path)
    assert callable(change)
    edit(shipped, change)
    done = run(shipped)
    assert done.returncode == 1
    assert done.stderr.startswith("refused: ")
    assert message in done.stderr


def test_a_negative_token_is_refused(masked_folder: Path, tmp_path: Path) -> None:
    """ONNX's Gather takes it from the end of the embedding, and nothing else would tell."""
    shipped = copied(masked_folder, tmp_path)
    edit(shipped, lambda m: entry(m, ARTIFACT)["inputs"][0].update(dtype="int64", values=[0, 30]))
    given = inputs() | {"hidden_states": np.full((2, 8, 16), -5, dtype=np.int64)}
    np.savez(tmp_path / "in.npz", **given)  # type: ignore[arg-type]
    done = run(shipped, "--inputs", tmp_path / "in.npz")
    assert done.returncode == 1
    assert done.stderr.startswith("refused: hidden_states holds -5 to -5, verified on 0 to 30")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"refused: {tmp_path} holds no {FILE_NAME}; give what linattn-export build wrote\n"
    )
