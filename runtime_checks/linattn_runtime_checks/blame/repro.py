"""``repro/``: a folder with one Python file that shows a failure, and all it needs.

It holds the artifact and what lies beside it, the smallest failing input that there is, the
float64 output, what the artifact gave, and the versions. The input is the failing case with the
fewest tokens, cut down to the one sequence of its batch that is wrong, where it is wrong alone too.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from linattn_runtime_checks.blame.locate import smallest_failing, wrong_outputs
from linattn_runtime_checks.blame.program import program_text
from linattn_runtime_checks.contract.golden_pack import Case, Reference, holder
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import Error
from linattn_runtime_checks.results import environment
from linattn_runtime_checks.results.report import RuntimeResult
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import RunFailed, Session, Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What goes into the folder."""

    inputs: Tensors
    expected: Tensors
    got: Tensors
    rounding: dict[str, Error]


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
        The folder of this repro, None if no case that is stored whole is wrong in that mode, or
        the runtime's record has no program.
    """
    runtime = RUNTIMES[result.runtime]
    failing = smallest_failing([case for case in result.cases if case.mode == runtime.modes[-1]])
    found_in = None if failing is None else holder(packs, failing.case)
    if failing is None or found_in is None or runtime.program is None:
        return None
    reference, case = found_in
    if case.long is not None:
        return None  # its outputs are stored in part, and shorter ones are right
    inputs, expected = reference.inputs(case), reference.outputs(case)
    try:
        got = session.run(inputs)
    except RunFailed:
        return None
    rounding = {name: case.yardstick(name) for name in expected}
    shown = _Shown(inputs=inputs, expected=expected, got=got, rounding=rounding)
    if artifact.axis("batch").declared[0] == 1 and case.batch > 1:
        shown = _shrunk(session, artifact, case, shown, reference) or shown
    place = folder / f"{artifact.id.replace('/', '-')}-{result.runtime}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in (path.name, *(Path(file.path).name for file in artifact.side_files)):
        shutil.copyfile(path.parent / name, place / name)
    np.savez(place / "inputs.npz", **_savable(shown.inputs))
    np.savez(place / "expected.npz", **_savable(shown.expected))
    np.savez(place / "got.npz", **_savable(shown.got))
    text = program_text(
        f"{artifact.id} on {result.runtime}: {failing.message}",
        file=path.name,
        inputs=[spec.name for spec in artifact.inputs],
        outputs=[spec.name for spec in artifact.outputs],
        rounding=shown.rounding,
        run=runtime.program,
    )
    (place / "repro.py").write_text(text, encoding="utf-8")
    versions = json.dumps(environment.describe(), indent=2)
    (place / "versions.json").write_text(versions + "\n", encoding="utf-8")
    return place


def _shrunk(
    session: Session, artifact: Artifact, case: Case, shown: _Shown, reference: Reference
) -> _Shown | None:
    """One sequence of the batch that is wrong alone too; None if there is none.

    What rounding costs was measured on the whole batch. One sequence may take a larger share of
    itself, but no more than the worst row does of its own.
    """
    axes = reference.index.batch_axes
    ranks = {name: tensor.ndim for name, tensor in shown.expected.items()}
    if any(rank - 1 in _axes(axes.get(name, 0)) for name, rank in ranks.items()):
        return None  # its rows run over the batch, and one sequence alone has none
    rounding = {
        name: replace(error, whole=max(error.row, error.whole))
        for name, error in shown.rounding.items()
    }
    for index in range(case.batch):
        one = {name: _sequence(x, axes.get(name, 0), index) for name, x in shown.inputs.items()}
        want = {name: _sequence(x, axes.get(name, 0), index) for name, x in shown.expected.items()}
        try:
            alone = session.run(one)
        except RunFailed:
            continue
        if wrong_outputs(alone, want, artifact, rounding):
            return _Shown(inputs=one, expected=want, got=alone, rounding=rounding)
    return None


def _axes(batch: int | list[int] | None) -> list[int]:
    """Those of ``ReferenceIndex.batch_axes`` as a list."""
    return [batch] if isinstance(batch, int) else batch or []


def _sequence(tensor: Any, batch: int | list[int] | None, index: int) -> Any:
    """One sequence of a batch, which stays a batch of one."""
    for axis in _axes(batch):
        tensor = tensor.take([index], axis=axis)
    return tensor


def _savable(tensors: Tensors) -> dict[str, Any]:
    # Not np.ascontiguousarray, which gives a number without axes one.
    return {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
