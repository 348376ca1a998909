"""A session that passes everything on: the base of the faults of a runtime."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from linattn_runtime_checks.contract.manifest import Artifact, TensorSpec
from linattn_runtime_checks.runtimes.base import Session, Tensors


class Faulty:
    """The faults override ``run``."""

    def __init__(self, session: Session, artifact: Artifact) -> None:
        self._session, self._artifact = session, artifact

    def run(self, inputs: Tensors) -> Tensors:
        """See Session."""
        return self._session.run(inputs)

    def signature(self) -> tuple[list[TensorSpec], list[TensorSpec]] | None:
        """See Session."""
        return self._session.signature()

    def labels(self) -> str | None:
        """See Session."""
        return self._session.labels()

    def providers(self) -> list[str]:
        """See Session."""
        return self._session.providers()

    def _outputs(self, inputs: Tensors, change: Callable[[NDArray[Any]], None]) -> Tensors:
        outputs = {name: tensor.copy() for name, tensor in self._session.run(inputs).items()}
        for tensor in outputs.values():
            change(tensor)
        return outputs
