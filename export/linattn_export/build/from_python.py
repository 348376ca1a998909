"""``export_module``: what ``linattn-export build --module`` does, from Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from linattn_export.build.pipeline import build_subjects
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subjects import subjects_from
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.results.report import Report


def export_module(
    module: nn.Module,
    inputs: Path | str | Mapping[str, Any],
    output: Path | str = "artifacts",
    *,
    name: str | None = None,
    formats: Sequence[str] = (),
    lengths: Sequence[int] | None = None,
    runtimes: Sequence[str] = (),
    dtype: str = "fp32",
    opset: int = 18,
    seed: int = 0,
    check: bool = True,
    latency: bool = True,
    memory_limit: float | None = None,
    quiet: bool = False,
) -> Report:
    """Write ``module`` as ONNX, TorchScript and torch.export files, judge them and report on them.

    The module itself stays as it is: its mode, dtype, device, gradient flags, buffers and
    attributes; only a lazy one is initialised, from ``seed``, as its first run would. Of a module
    in ``torch.compile`` or ``DataParallel`` the one inside is exported.

    Args:
        module: takes and returns tensors, also in dicts, tuples and dataclasses.
        inputs: SPEC of its inputs, a TOML or JSON file or a dictionary; see
            :mod:`linattn_export.own.spec`.
        output: folder to write; must be new, empty, or one that a build wrote.
        name: of the model in the folder; the class name by default.
        formats: ``onnx``, ``torchscript``, ``pt2``; all by default, and then TorchScript is left
            out, with the reason in the report, where the module cannot be scripted.
        lengths: fixed sequence lengths besides the dynamic file; None or ``()`` for none.
        runtimes: that judge; all that are available by default.
        dtype: ``fp32`` or ``fp16``, of weights, floating-point inputs and outputs.
        opset: ONNX opset, 17 to 23.
        seed: of fresh weights and of the inputs of the checks.
        check: judge what was written.
        latency: time what was judged.
        memory_limit: GiB that the build may take, and each child process; None means what is free.
        quiet: say nothing on stderr but errors.

    Returns:
        The report: ``verdict``, ``exit_code``, and what was found; it is also in the folder.

    Raises:
        UsageError: SPEC and module contradict each other; nothing was written.
        ExportError: the module cannot be captured; the message names the line and the fix.
        EnvironmentProblem: a runtime or package that was asked for is missing.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(f"expected a torch.nn.Module, got {type(module).__name__}")
    request = BuildRequest(
        output=Path(output),
        formats=tuple(formats),
        lengths=None if lengths is None else tuple(lengths),
        runtimes=tuple(runtimes),
        dtype=dtype,
        opset=opset,
        seed=seed,
        check=check,
        latency=latency,
        memory_limit=memory_limit,
        quiet=quiet,
        shrink=False,
    )
    return build_subjects(
        request, lambda: subjects_from(module, read_spec(inputs), request, name), command=None
    )
