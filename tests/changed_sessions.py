"""Sessions whose inputs or outputs are changed, and what the checks say of them."""

from collections.abc import Callable
from pathlib import Path

from checking import performed
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.manifest import Artifact, read
from linattn_runtime_checks.results.report import CaseResult
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Session, SessionOptions, Tensors

INVARIANCES = (
    "finite", "deterministic", "padding", "nan_padding", "alone", "equivariant", "causal",
)  # fmt: skip


Change = Callable[[Tensors, Callable[[Tensors], Tensors]], Tensors]


class Changed:
    """A session whose runs go through ``change``."""

    def __init__(self, session: Session, change: Change) -> None:
        self._session, self._change = session, change

    def run(self, inputs: Tensors) -> Tensors:
        return self._change(inputs, self._session.run)

    def signature(self) -> None:
        return None

    def labels(self) -> str | None:
        return None

    def providers(self) -> list[str]:
        return self._session.providers()


def codes(folder: Path, name: str, change: Change, cases: tuple[CaseResult, ...] = ()) -> dict[str, Code]:  # fmt: skip # noqa: E501
    artifact = artifact_of(folder, name)
    runtime = RUNTIMES["ort-cpu" if artifact.format == "onnx" else "torchscript"]
    options = SessionOptions(mode=runtime.modes[-1], threads=1)
    session = Changed(runtime.open(folder / artifact.path, artifact, options), change)
    with open_reference(folder / artifact.reference) as reference:
        found = performed(session, artifact, reference, INVARIANCES, cases)
    return {check.name: check.code for check in found.checks}


def artifact_of(folder: Path, name: str) -> Artifact:
    return next(artifact for artifact in read(folder).artifacts if artifact.id == name)


def nothing(inputs: Tensors, run: Callable[[Tensors], Tensors]) -> Tensors:
    return run(inputs)
