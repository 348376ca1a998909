"""Exports a module of one's own: ``linattn-export build --module``, and the same from Python."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from linattn_export.formats import FORMATS
from linattn_export.own.borrow import borrowed
from linattn_export.own.kinds import parts_unwrapped, require_exportable, unwrapped
from linattn_export.own.lazy import initialise, make_room
from linattn_export.own.load import load_module
from linattn_export.own.signature import class_name
from linattn_export.own.spec import Inputs, read_spec
from linattn_export.own.specs import specs_of
from linattn_export.own.subject import make_subject
from linattn_export.request import BuildRequest
from linattn_export.subject import TORCH_DTYPES, Subject
from linattn_export.weights import load_weights
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.processes.progress import interrupts_wait
from linattn_runtime_checks.results.report import Report


def export_module(
    module: nn.Module,
    inputs: Path | str | Mapping[str, Any],
    output: Path | str = "artifacts",
    *,
    name: str | None = None,
    formats: Sequence[str] = (),
    lengths: Sequence[int] = (),
    runtimes: Sequence[str] = (),
    dtype: str = "fp32",
    opset: int = 18,
    seed: int = 0,
    check: bool = True,
    latency: bool = True,
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
        lengths: fixed sequence lengths besides the dynamic file.
        runtimes: that judge; all that are available by default.
        dtype: ``fp32`` or ``fp16``, of weights, floating-point inputs and outputs.
        opset: of the ONNX files.
        seed: of the inputs.
        check: judge what was written.
        latency: time what was judged.
        quiet: say nothing on stderr.

    Returns:
        The report: ``verdict``, ``exit_code``, and what was found; it is also in the folder.

    Raises:
        UsageError: SPEC and module contradict each other; nothing was written.
        ExportError: the module cannot be captured; the message names the line and the fix.
        EnvironmentProblem: a runtime or package that was asked for is missing.
    """
    from linattn_export.pipeline import build_subjects

    if not isinstance(module, nn.Module):
        raise UsageError(f"expected a torch.nn.Module, got {type(module).__name__}")
    request = BuildRequest(
        output=Path(output),
        formats=tuple(formats),
        lengths=tuple(lengths) or None,
        runtimes=tuple(runtimes),
        dtype=dtype,
        opset=opset,
        seed=seed,
        check=check,
        latency=latency,
        quiet=quiet,
        shrink=False,
    )
    return build_subjects(
        request, lambda: _subjects(module, read_spec(inputs), request, name), command=None
    )


@contextmanager
def subjects_of_module(request: BuildRequest) -> Iterator[list[Subject]]:
    """The subject that ``--module`` and ``--inputs`` describe, for the time of a build.

    Raises:
        UsageError: the factory, the SPEC or the weights cannot be used.
    """
    assert request.module is not None
    if request.inputs is None:
        raise UsageError(
            "--module needs --inputs SPEC, a TOML or JSON file that describes what the module takes"
        )
    inputs = read_spec(request.inputs)
    module = load_module(request.module, request.seed)
    name = request.module.partition(":")[2]
    with _subjects(module, inputs, request, name, request.module) as subjects:
        yield subjects


@contextmanager
def _subjects(
    module: nn.Module,
    inputs: Inputs,
    request: BuildRequest,
    name: str | None,
    source: str | None = None,
) -> Iterator[list[Subject]]:
    with interrupts_wait(every=True):
        import_module("torch._dynamo")  # the first operator that is watched would import it
    inside, around = unwrapped(module)
    label = class_name(inside)
    formats = request.formats or tuple(FORMATS)
    with parts_unwrapped(inside):
        if request.weights is None:
            require_exportable(inside, formats)
        else:
            make_room(inside)
        initialise(inside, inputs, specs_of(inputs, request), request.seed)
        if request.weights is not None:
            load_weights(inside, request.weights, f"the module of {source}")
            require_exportable(inside, formats)
        with borrowed(inside, TORCH_DTYPES[request.dtype]) as lent:
            where = f"{source or label}{around}"
            yield [make_subject(lent, inputs, request, name or label, where)]
