"""The main job: make the subjects, write every artifact, have them judged, swap the folder in."""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from pathlib import Path

import torch

from linattn.torch_internals import CAPTURE_IMPORTS
from linattn_export.build.estimate import require_memory
from linattn_export.build.record import entry_of, metadata_of, record
from linattn_export.build.shrink import shrink_repros
from linattn_export.build.staging import check_output, staged
from linattn_export.build.test_data import write_test_data
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Format, Job
from linattn_export.golden.outside import notes_of
from linattn_export.golden.writing import write_golden
from linattn_export.live_module.restored import restored
from linattn_export.options.onnx_forms import require_runtime
from linattn_export.options.request import BuildRequest, command_of
from linattn_export.options.variants import PORTABLE, Variant
from linattn_export.own.subjects import subjects_of_module
from linattn_export.subjects.making import make_subjects
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract import manifest
from linattn_runtime_checks.contract.errors import (
    EnvironmentProblem,
    ExportError,
    UsageError,
    unknown,
)
from linattn_runtime_checks.contract.integrity import stored
from linattn_runtime_checks.contract.manifest import (
    Artifact,
    Manifest,
    Tool,
)
from linattn_runtime_checks.judging.folder import (
    CheckRequest,
    check_folder,
    describe_unchecked,
    judging,
)
from linattn_runtime_checks.processes.child import Limits
from linattn_runtime_checks.processes.pool import children
from linattn_runtime_checks.processes.progress import Progress, interrupts_wait, progress
from linattn_runtime_checks.report.files import write_reports
from linattn_runtime_checks.results import environment
from linattn_runtime_checks.results.report import Report
from linattn_runtime_checks.runtimes import choose
from linattn_runtime_checks.runtimes.base import Tensors


def build(request: BuildRequest) -> Report:
    """Build the folder that ``request`` describes.

    Returns:
        The report, whose ``exit_code`` says how it went; it is also in the folder.

    Raises:
        UsageError: something in the request cannot be used; nothing was written.
        EnvironmentProblem: a runtime or package that was asked for is missing.
        ExportError: an artifact cannot be made; the folder that was there is unchanged.
    """
    if request.module is not None:
        subjects = partial(subjects_of_module, request)
        return build_subjects(request, subjects, command_of(request))
    return build_subjects(
        request, lambda: contextlib.nullcontext(make_subjects(request)), command_of(request)
    )


def build_subjects(
    request: BuildRequest,
    subjects: Callable[[], AbstractContextManager[list[Subject]]],
    command: list[str] | None,
) -> Report:
    """As :func:`build`, of subjects that are made, and given back, by ``subjects``.

    The manifest records ``command``, which is None where no command makes these subjects.
    """
    start = time.monotonic()
    formats = _formats(request)
    if request.check:
        choose(request.runtimes)
    check_output(request.output)
    with restored(), subjects() as made:
        _require_memory(made, formats, request)
        with staged(request.output) as folder:
            report = _built(folder, made, formats, request, command, start)
    return report


def _require_memory(subjects: list[Subject], formats: list[Format], request: BuildRequest) -> None:
    """Refuse what does not fit; see :func:`linattn_export.build.estimate.require_memory`."""
    artifacts = sum(len(_pairs(subject, formats)) for subject in subjects)
    given = request.memory_limit
    limit = environment.free_memory() if given is None else given * 2**30

    def tell(line: str) -> None:
        if request.verbose and not request.quiet:
            print(line, file=sys.stderr)

    require_memory(subjects, children(artifacts), limit, check=request.check, tell=tell)


def _built(
    folder: Path,
    made: list[Subject],
    formats: list[Format],
    request: BuildRequest,
    command: list[str] | None,
    start: float,
) -> Report:
    _import_all(formats)
    if request.check and any(kind.forms for kind in formats):
        require_runtime(request.onnx_forms)
    document, report = _written_and_judged(folder, made, formats, request, command)
    if request.shrink:
        shrink_repros(folder, report, request, build)
    record(folder, document, report)
    report.seconds = time.monotonic() - start
    with interrupts_wait(every=True):  # it imports what draws
        unwritten = write_reports(folder, report, document)
    if unwritten is not None:
        report.left_out["report.html"] = unwritten
    manifest.write(folder, document)
    return report


def _formats(request: BuildRequest) -> list[Format]:
    for name in request.formats:
        if name not in FORMATS:
            raise UsageError(unknown("format", name, FORMATS))
    chosen = [f for name, f in FORMATS.items() if not request.formats or name in request.formats]
    for wanted in chosen:
        if (reason := wanted.unavailable()) is not None:
            raise EnvironmentProblem(
                f"format {wanted.name} is not available: {reason}; or choose other formats with "
                "`formats`"
            )
    return chosen


def _import_all(formats: list[Format]) -> None:
    """Whoever stops an import halfway cannot import that package again in the same process."""
    with interrupts_wait(every=True):
        for kind in formats:
            for name in (*kind.imports, *(CAPTURE_IMPORTS if kind.captured else ())):
                import_module(name)


def _written_and_judged(
    folder: Path,
    subjects: list[Subject],
    formats: list[Format],
    request: BuildRequest,
    command: list[str] | None,
) -> tuple[Manifest, Report]:
    """Every artifact is judged while the next ones are written."""
    document = _empty(request, command)
    if not request.check:
        torch.set_num_threads(environment.cores())
        _write(folder, subjects, formats, request, document, lambda artifact: None)
        return document, describe_unchecked(document)
    torch.set_num_threads(1)  # the other cores judge
    check = _check_request(folder, subjects, request)
    artifacts = sum(len(_pairs(subject, formats)) for subject in subjects)
    with judging(folder, check, artifacts, [kind.name for kind in formats]) as begun:
        _write(folder, subjects, formats, request, document, begun.add)
        return document, check_folder(folder, document, check, begun)


def _empty(request: BuildRequest, command: list[str] | None) -> Manifest:
    """The manifest of a folder that holds nothing yet."""
    return Manifest(
        schema_version=manifest.SCHEMA_VERSION,
        tool=Tool(name="linattn-export", version=environment.version("linattn") or "unknown"),
        command=command,
        seed=request.seed,
        environment=environment.describe(),
        artifacts=[],
        references=[],
        test_data=[],
        verdict="UNVERIFIED",
    )


def _write(
    folder: Path,
    subjects: list[Subject],
    formats: list[Format],
    request: BuildRequest,
    document: Manifest,
    written: Callable[[Artifact], None],
) -> None:
    """Write everything but manifest and reports; ``written`` is told of every artifact."""
    steps = sum(1 + len(_pairs(subject, formats)) for subject in subjects)
    with progress("exporting", steps, quiet=request.quiet) as bar:
        for subject in subjects:
            for artifact in _write_subject(folder, subject, formats, request, document, bar):
                written(artifact)


def _write_subject(
    folder: Path,
    subject: Subject,
    formats: list[Format],
    request: BuildRequest,
    document: Manifest,
    bar: Progress,
) -> Iterator[Artifact]:
    bar.step(f"{subject.key} reference")
    pairs = _pairs(subject, formats)
    jobs = {variant.name: Job.of(subject, variant, request.opset) for variant, _ in pairs}
    captured = {variant.name for variant, kind in pairs if kind.captured}
    programs = {name: job.program for name, job in jobs.items() if name in captured}
    pack = write_golden(subject, folder / subject.reference, programs=programs)
    document.references.append(stored(folder, subject.reference))
    for variant, kind in pairs:
        job = jobs[variant.name]
        job.metadata = metadata_of(job, document.tool.version)
        place = f"{subject.name}/{kind.name}/{variant.name}"
        bar.step(place)
        (folder / place).mkdir(parents=True)
        try:
            written = kind.write(job, folder / place / kind.file_name)
        except ExportError as error:
            if not _may_be_left_out(subject, kind, request):
                raise
            shutil.rmtree(folder / place)
            document.not_made[place] = str(error)
            continue
        names = (kind.file_name, *written.side_files)
        files = [stored(folder, f"{place}/{name}") for name in names]
        entry = entry_of(job, kind, files, written, place, subject.reference)
        entry.notes += notes_of(pack.left_out)
        document.artifacts.append(entry)
        if kind.test_data:
            paths = write_test_data(folder, place, document.artifacts[-1])
            document.test_data += [stored(folder, path) for path in paths]
        yield document.artifacts[-1]


def _may_be_left_out(subject: Subject, kind: Format, request: BuildRequest) -> bool:
    """Not everybody's module is written for a format that takes less of Python than capture."""
    return subject.is_own and kind.optional and kind.name not in request.formats


def _pairs(subject: Subject, formats: list[Format]) -> list[tuple[Variant, Format]]:
    """What is written; forms other than the portable one in formats that have them."""
    return [
        (variant, kind)
        for variant in subject.variants
        for kind in formats
        if variant.form == PORTABLE or kind.forms
    ]


def _check_request(folder: Path, subjects: list[Subject], request: BuildRequest) -> CheckRequest:
    return CheckRequest(
        runtimes=request.runtimes,
        latency=request.latency,
        quiet=request.quiet,
        unjudged_is_unverified=not request.runtimes,
        eager={subject.key: _eager(subject) for subject in subjects},
        limits=Limits(gibibytes=request.memory_limit),
        repro=folder / "repro",
    )


def _eager(subject: Subject) -> Callable[[Tensors], object]:
    call = subject.eager()

    def eager(inputs: Tensors) -> object:
        if torch.get_num_threads() != environment.cores():
            torch.set_num_threads(environment.cores())
        return call({name: torch.from_numpy(x) for name, x in inputs.items()})

    return eager
