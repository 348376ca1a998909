"""Makes a failure smaller: the same method in the same format, with one head and short lengths.

What was exported wrongly is mostly wrong at any size. A small artifact that still fails is easier
to look at than a large one, so it takes the large one's place in ``repro/``.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from linattn import record_of
from linattn.contract import SIZES
from linattn_export.options.request import BuildRequest
from linattn_models import MODELS
from linattn_runtime_checks.contract.errors import ExitCode, LinattnError
from linattn_runtime_checks.results.report import ArtifactResult, Report

Build = Callable[[BuildRequest], Report]

_HEAD_DIM, _MOST_TOKENS = 8, 32


def shrink_repros(
    folder: Path, report: Report, request: BuildRequest, build: Build
) -> dict[str, str]:
    """Replace each repro below ``folder`` by a smaller one, where a smaller artifact fails too.

    Args:
        folder: holds ``repro/``.
        report: of the build; its repros are looked at.
        request: of the build.
        build: makes and judges a folder.

    Returns:
        Name of each repro that was replaced, to what it is now.
    """
    made: dict[str, str] = {}
    for artifact in report.artifacts:
        for result in artifact.runtimes:
            if result.repro is not None and _can_shrink(artifact, request):
                small = _smaller(artifact, result.runtime, request)
                told = _replace(folder / "repro" / result.repro, small, build)
                if told is not None:
                    made[result.repro] = told
    return made


def _can_shrink(artifact: ArtifactResult, request: BuildRequest) -> bool:
    """Not where weights of a certain size are part of the subject."""
    return (
        request.module is None
        and request.weights is None
        and artifact.model in MODELS
        and MODELS[artifact.model].weights is None
    )


def _smaller(artifact: ArtifactResult, runtime: str, request: BuildRequest) -> BuildRequest:
    low, high = artifact.declared_sequence
    fixed = low == high
    length = min(high, _MOST_TOKENS)
    options = dict(request.options)
    shrunk = record_of(artifact.method).shrunk
    if shrunk is not None:
        options[artifact.method] = options.get(artifact.method, {}) | shrunk(length)
    return replace(
        request,
        methods=(artifact.method,),
        models=(artifact.model,),
        formats=(artifact.format,),
        lengths=(length,) if fixed else (),
        dynamic="" if fixed else f"{min(low, length - 1)}:{length}",
        batch="1:2",
        d_model=_HEAD_DIM,
        heads=1,
        options={
            method: {name: value for name, value in each.items() if name not in SIZES}
            for method, each in options.items()
            if method == artifact.method
        },
        entries=(artifact.entry,),
        onnx_forms=(artifact.form,),
        min_ort=None,
        runtimes=(runtime,),
        latency=False,
        quiet=True,
        check=True,
        shrink=False,
    )


def _replace(place: Path, request: BuildRequest, build: Build) -> str | None:
    """Build small; if that fails too, put its repro at ``place`` and say what it is."""
    with tempfile.TemporaryDirectory(prefix="linattn-shrink-") as temporary:
        small = replace(request, output=Path(temporary) / "out")
        try:
            report = build(small)
        except LinattnError:
            return None  # it cannot even be made this small
        (result,) = (run for artifact in report.artifacts for run in artifact.runtimes)
        if report.exit_code is not ExitCode.PARITY or result.repro is None:
            return None
        shutil.rmtree(place)
        shutil.copytree(small.output / "repro" / result.repro, place)
    return f"with 1 head of {_HEAD_DIM}, at most {request.lengths or request.dynamic} tokens"
