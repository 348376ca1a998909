"""The torch-based runtimes: TorchScript, and torch.export's ExportedProgram.

Both file types run code when they are loaded: load only files whose hash was checked.
"""

import contextlib
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.contract.manifest import Artifact, TensorSpec
from linattn_runtime_checks.cost.certificate import CostCertificate
from linattn_runtime_checks.runtimes.base import (
    ANY_SYMBOL,
    RunFailed,
    Runtime,
    SessionOptions,
    Tensors,
)


class TorchSession:
    """A callable that takes the artifact's inputs in their order."""

    def __init__(self, function: Any, artifact: Artifact, options: SessionOptions) -> None:
        self._function = function
        self._inputs = [spec.name for spec in artifact.inputs]
        self._outputs = [spec.name for spec in artifact.outputs]
        self._threads = options.threads

    def run(self, inputs: Tensors) -> Tensors:
        """See Session."""
        import torch

        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        if missing := [name for name in self._inputs if name not in inputs]:
            raise RunFailed(f"nothing to give for input {', '.join(missing)}")
        arguments = [torch.from_numpy(inputs[name]) for name in self._inputs]
        try:
            with torch.no_grad():
                output = self._function(*arguments)
        except Exception as error:
            raise RunFailed(_last_line(error)) from error
        outputs = output if isinstance(output, tuple | list) else (output,)
        if len(outputs) != len(self._outputs):
            raise RunFailed(f"returned {len(outputs)} outputs, promised {len(self._outputs)}")
        return {name: tensor.numpy() for name, tensor in zip(self._outputs, outputs, strict=True)}

    def signature(self) -> tuple[list[TensorSpec], list[TensorSpec]] | None:
        """TorchScript files declare no shapes."""
        return None

    def labels(self) -> str | None:
        """These files carry none; the manifest has them."""
        return None

    def providers(self) -> list[str]:
        """See Session."""
        return ["cpu"]


class ExportedProgramSession(TorchSession):
    """An ExportedProgram, with its own guards on the input shapes."""

    def __init__(self, program: Any, artifact: Artifact, options: SessionOptions) -> None:
        super().__init__(program.module(), artifact, options)
        self.program = program

    def signature(self) -> tuple[list[TensorSpec], list[TensorSpec]] | None:
        """Inputs and outputs of the program; it keeps no names of symbols."""
        signature = self.program.graph_signature
        values = {node.name: node.meta.get("val") for node in self.program.graph.nodes}
        inputs = zip(self._inputs, signature.user_inputs, strict=False)
        outputs = zip(self._outputs, signature.user_outputs, strict=False)
        return (
            [_spec(name, values[node]) for name, node in inputs],
            [_spec(name, values[node]) for name, node in outputs],
        )


def _spec(name: str, value: Any) -> TensorSpec:
    shape = [axis if isinstance(axis, int) else ANY_SYMBOL for axis in value.shape]
    return TensorSpec(name=name, dtype=str(value.dtype).removeprefix("torch."), shape=shape)


def unavailable() -> str | None:
    """See Runtime.unavailable; does not import torch."""
    if find_spec("torch") is None:
        return "torch is not installed; run: pip install 'linattn[export]'"
    return None


def _open_torchscript(path: Path, artifact: Artifact, options: SessionOptions) -> TorchSession:
    import torch

    with warnings.catch_warnings():
        # torch says at every load that TorchScript is deprecated.
        warnings.filterwarnings("ignore", message="`torch.jit", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="`torch.jit", category=FutureWarning)
        try:
            module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ExportError(
                f"TorchScript cannot load {path.name}: {_last_line(error)}"
            ) from error
    return TorchSession(module.eval(), artifact, options)


def _open_pt2(path: Path, artifact: Artifact, options: SessionOptions) -> ExportedProgramSession:
    import torch

    try:
        program = torch.export.load(path)
    except Exception as error:
        raise ExportError(f"torch.export cannot load {path.name}: {_last_line(error)}") from error
    return ExportedProgramSession(program, artifact, options)


def _prepare() -> None:
    import torch  # noqa: F401


def _prepare_pt2() -> None:
    _prepare()
    with contextlib.suppress(ImportError):  # what torch.export.load imports, half of its first call
        import torch._export.serde.serialize  # noqa: F401


def _certify(
    path: Path, artifact: Artifact, session: ExportedProgramSession
) -> list[CostCertificate]:
    from linattn_runtime_checks.cost.graph import certify_program

    return [certify_program(session.program, artifact)]


def _last_line(error: Exception) -> str:
    """The last line is the one that says what was wrong, in TorchScript's own tracebacks too."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


# See Runtime.program.
_PROGRAM = """\
import torch

module = {load}
with torch.no_grad():
    found = module(*(torch.from_numpy(inputs[name]) for name in INPUTS))
found = found if isinstance(found, (tuple, list)) else (found,)
outputs = {{name: tensor.numpy() for name, tensor in zip(OUTPUTS, found, strict=True)}}
"""
TORCHSCRIPT = Runtime(
    name="torchscript",
    title="TorchScript in PyTorch, CPU",
    formats=("torchscript",),
    modes=("default",),
    unavailable=unavailable,
    prepare=_prepare,
    open=_open_torchscript,
    declares_shapes=False,
    program=_PROGRAM.format(load='torch.jit.load(str(here / FILE), map_location="cpu").eval()'),
)
PT2 = Runtime(
    name="pt2",
    title="torch.export ExportedProgram in PyTorch, CPU",
    formats=("pt2",),
    modes=("default",),
    unavailable=unavailable,
    prepare=_prepare_pt2,
    open=_open_pt2,
    program=_PROGRAM.format(load="torch.export.load(here / FILE).module()"),
    certify=_certify,
)
