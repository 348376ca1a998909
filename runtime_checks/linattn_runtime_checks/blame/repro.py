"""``repro/``: a folder with one Python file that shows a failure, and all it needs.

It holds the artifact, the smallest failing input that there is, the float64 output, what the
artifact gave, and the versions. The input is the failing case with the fewest tokens, cut down to
the one sequence of its batch that is wrong, where it is wrong alone too.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linattn_runtime_checks import environment
from linattn_runtime_checks.blame.locate import WRONG, smallest_failing
from linattn_runtime_checks.manifest import Artifact
from linattn_runtime_checks.reference import Case, Reference, holder
from linattn_runtime_checks.report.model import RuntimeResult
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors
from linattn_runtime_checks.verdict import K, compare

_OPEN = {
    "onnx": """\
import onnxruntime as ort

session = ort.InferenceSession(str(here / FILE), providers=["CPUExecutionProvider"])
outputs = session.run(NAMES, inputs)
""",
    "torchscript": """\
import torch

module = torch.jit.load(str(here / FILE), map_location="cpu").eval()
with torch.no_grad():
    output = module(*(torch.from_numpy(inputs[name]) for name in INPUTS))
outputs = [output.numpy()]
""",
    "pt2": """\
import torch

module = torch.export.load(here / FILE).module()
with torch.no_grad():
    output = module(*(torch.from_numpy(inputs[name]) for name in INPUTS))
outputs = [output.numpy()]
""",
}
_USUAL = ("optimizer-on", "default")  # the modes that users run
_PROGRAM = '''\
"""{artifact} on {runtime}: {message}

Run it with Python and the packages of versions.json. It exits with 1 while the fault is there.
"""

import sys
from pathlib import Path

import numpy as np

FILE, NAMES, INPUTS = {file!r}, {names!r}, {inputs!r}
YARDSTICK, K = {yardstick!r}, {k!r}  # what rounding costs on this input, and how many are allowed
here = Path(__file__).parent
inputs = dict(np.load(here / "inputs.npz"))
expected = dict(np.load(here / "expected.npz"))  # float64

{open}
wrong = False
for name, got in zip(NAMES, outputs, strict=True):
    want = expected[name]
    print(f"{{name}}: shape {{list(got.shape)}}, expected {{list(want.shape)}}")
    if got.shape != want.shape or not np.array_equal(np.isfinite(got), np.isfinite(want)):
        wrong = True
        continue
    difference, size = np.atleast_2d(got - want), np.atleast_2d(want)
    norms = np.linalg.norm(size, axis=-1)
    distances = np.linalg.norm(difference, axis=-1)
    zero = norms == 0
    error = float((distances[~zero] / norms[~zero]).max(initial=0.0))
    print(f"largest relative error of a row: {{error:.3e}}, allowed {{K * YARDSTICK:.3e}}")
    wrong |= error > K * YARDSTICK or bool((distances[zero] > 0).any())
print("the fault is there" if wrong else "the fault is gone")
sys.exit(int(wrong))
'''


def write_repro(
    folder: Path,
    result: RuntimeResult,
    artifact: Artifact,
    packs: Sequence[Reference],
    session: Session,
    path: Path,
) -> Path | None:
    """Write the repro of a result with wrong numbers.

    Args:
        folder: to write below.
        result: of ``artifact`` on one runtime.
        artifact: its manifest entry.
        packs: its golden packs.
        session: opened in the mode that users run.
        path: of the artifact.

    Returns:
        The folder of this repro, None if no stored case is wrong in that mode.
    """
    failing = smallest_failing([case for case in result.cases if case.mode in _USUAL])
    found_in = None if failing is None else holder(packs, failing.case)
    if failing is None or found_in is None:
        return None
    reference, case = found_in
    inputs, expected = reference.inputs(case), reference.outputs(case)
    try:
        got = session.run(inputs)
    except RunFailed:
        return None
    if artifact.axis("batch").declared[0] == 1 and case.batch > 1:
        inputs, expected, got = _shrunk(session, artifact, case, inputs, expected, got)
    place = folder / f"{artifact.id.replace('/', '-')}-{result.runtime}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copyfile(path, place / path.name)
    np.savez(place / "inputs.npz", **_savable(inputs))
    np.savez(place / "expected.npz", **_savable(expected))
    np.savez(place / "got.npz", **_savable(got))
    text = _PROGRAM.format(
        artifact=artifact.id,
        runtime=result.runtime,
        message=failing.message.replace("\\", "/").replace('"', "'"),
        file=path.name,
        names=[spec.name for spec in artifact.outputs],
        inputs=[spec.name for spec in artifact.inputs],
        yardstick=case.yardstick().row,
        k=K,
        open=_OPEN[artifact.format],
    )
    (place / "repro.py").write_text(text, encoding="utf-8")
    versions = json.dumps(environment.describe(), indent=2)
    (place / "versions.json").write_text(versions + "\n", encoding="utf-8")
    return place


def _shrunk(
    session: Session,
    artifact: Artifact,
    case: Case,
    inputs: Tensors,
    expected: Tensors,
    got: Tensors,
) -> tuple[Tensors, Tensors, Tensors]:
    """One sequence of the batch that is wrong alone too, or all of it."""
    for index in range(case.batch):
        one = {name: tensor[index : index + 1] for name, tensor in inputs.items()}
        want = {name: tensor[index : index + 1] for name, tensor in expected.items()}
        try:
            alone = session.run(one)
        except RunFailed:
            continue
        for name, tensor in want.items():
            found = compare(alone[name], tensor, artifact.dtype, case.yardstick())
            if found.code in WRONG:
                return one, want, alone
    return inputs, expected, got


def _savable(tensors: Tensors) -> dict[str, Any]:
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
