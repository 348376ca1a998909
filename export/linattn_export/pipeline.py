"""The main job: make the subjects, write every artifact, have them judged, swap the folder in."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from linattn import METHODS
from linattn_export.cases import verified_batch
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Format, Job, Written
from linattn_export.formats.onnx_graph import stamp
from linattn_export.golden import write_golden
from linattn_export.request import BuildRequest
from linattn_export.shrink import shrink_repros
from linattn_export.staging import check_output, staged
from linattn_export.subject import Subject, make_subjects
from linattn_export.test_data import write_test_data
from linattn_export.variants import Variant
from linattn_runtime_checks import environment, manifest
from linattn_runtime_checks.errors import EnvironmentProblem, UsageError, unknown
from linattn_runtime_checks.integrity import stored
from linattn_runtime_checks.manifest import (
    Artifact,
    AxisRange,
    LatencyEntry,
    Manifest,
    RuntimeCheck,
    StoredFile,
    Tool,
)
from linattn_runtime_checks.progress import Progress, progress
from linattn_runtime_checks.report.files import write_reports
from linattn_runtime_checks.report.model import ArtifactResult, Report
from linattn_runtime_checks.runner import CheckRequest, check_folder, describe_unchecked
from linattn_runtime_checks.runtimes import choose
from linattn_runtime_checks.runtimes.base import Tensors

UNVERIFIED = "none"


def build(request: BuildRequest) -> Report:
    """Build the folder that ``request`` describes.

    Returns:
        The report, whose ``exit_code`` says how it went; it is also in the folder.

    Raises:
        UsageError: something in the request cannot be used; nothing was written.
        EnvironmentProblem: a runtime or package that was asked for is missing.
        ExportError: an artifact cannot be made; the folder that was there is unchanged.
    """
    formats = _formats(request)
    if request.check:
        choose(request.runtimes)
    check_output(request.output)
    subjects = make_subjects(request)
    torch.set_num_threads(environment.cores())
    with staged(request.output) as folder:
        document = _write(folder, subjects, formats, request)
        report = _judge(folder, document, subjects, request)
        if request.shrink:
            shrink_repros(folder, report, request, build)
        _record(folder, document, report)
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
                f"format {wanted.name} is not available: {reason}; or choose other formats with -f"
            )
    return chosen


def _write(
    folder: Path, subjects: list[Subject], formats: list[Format], request: BuildRequest
) -> Manifest:
    document = Manifest(
        schema_version=manifest.SCHEMA_VERSION,
        tool=Tool(name="linattn-export", version=environment.version("linattn") or "unknown"),
        command=command_of(request),
        seed=request.seed,
        environment=environment.describe(),
        artifacts=[],
        references=[],
        test_data=[],
        verdict="UNVERIFIED",
    )
    steps = sum(1 + len(subject.variants) * len(formats) for subject in subjects)
    with progress("exporting", steps, quiet=request.quiet) as bar:
        for subject in subjects:
            _write_subject(folder, subject, formats, request, document, bar)
    return document


def _write_subject(
    folder: Path,
    subject: Subject,
    formats: list[Format],
    request: BuildRequest,
    document: Manifest,
    bar: Progress,
) -> None:
    bar.step(f"{subject.name} reference")
    reference = f"{subject.name}/reference.safetensors"
    jobs = [Job(subject=subject, variant=v, opset=request.opset) for v in subject.variants]
    captured = any(kind.captured for kind in formats)
    programs = {job.variant.name: job.program for job in jobs} if captured else {}
    write_golden(subject, folder / reference, programs=programs)
    document.references.append(stored(folder, reference))
    for job in jobs:
        job.metadata = _metadata(job, document.tool.version)
        for kind in formats:
            place = f"{subject.name}/{kind.name}/{job.variant.name}"
            bar.step(place)
            (folder / place).mkdir(parents=True)
            written = kind.write(job, folder / place / kind.file_name)
            entry = stored(folder, f"{place}/{kind.file_name}")
            document.artifacts.append(_artifact(job, kind, entry, written, place, reference))
            if kind.name == "onnx":
                paths = write_test_data(folder, place, document.artifacts[-1])
                document.test_data += [stored(folder, path) for path in paths]


def _artifact(
    job: Job, kind: Format, file: StoredFile, written: Written, place: str, reference: str
) -> Artifact:
    inputs, outputs = job.specs()
    tensors = list(job.entry.parameters()) + list(job.entry.buffers())
    return Artifact(
        path=file.path,
        sha256=file.sha256,
        bytes=file.bytes,
        id=place,
        model=job.subject.model.name,
        method=job.subject.method,
        config=job.subject.config(job.entry),
        format=kind.name,
        variant=job.variant.name,
        dtype="float16" if job.subject.dtype == torch.float16 else "float32",
        parameters=sum(tensor.numel() for tensor in tensors),
        weight_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        nodes=written.nodes,
        op_histogram=written.op_histogram,
        opsets=written.opsets,
        ir_version=written.ir_version,
        inputs=inputs,
        outputs=outputs,
        axes=[_axis(job.variant, name) for name in ("batch", "sequence")],
        reference=reference,
        cost=METHODS[job.subject.method].capabilities.cost,
        equivariant=job.subject.equivariant,
    )


def _axis(variant: Variant, name: str) -> AxisRange:
    size = variant.size(name)
    return AxisRange(name=name, declared=(size.low, size.high), captured=variant.captured[name])


def _metadata(job: Job, version: str) -> dict[str, str]:
    """What an ONNX file says of itself. The range is what the checks below will have run.

    If they do not pass, or are not run, :func:`_record` replaces it; so the bytes that were
    checked are the bytes that ship.
    """
    return {
        "linattn.method": job.subject.method,
        "linattn.model": job.subject.model.name,
        "linattn.config": json.dumps(job.subject.config(job.entry), sort_keys=True),
        "linattn.mask": "attention_mask: bool, True = a real token" if job.subject.mask else "none",
        "linattn.declared_sequence": str(job.variant.sequence),
        "linattn.verified_sequence": str(job.variant.sequence),
        "linattn.declared_batch": str(job.variant.batch),
        "linattn.verified_batch": _span(verified_batch(job.variant)),
        "linattn.version": version,
    }


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]}:{ends[1]}" if ends[0] < ends[1] else str(ends[0])


def _judge(
    folder: Path, document: Manifest, subjects: list[Subject], request: BuildRequest
) -> Report:
    if not request.check:
        return describe_unchecked(document)
    check = CheckRequest(
        runtimes=request.runtimes,
        latency=request.latency,
        quiet=request.quiet,
        unjudged_is_unverified=not request.runtimes,
        eager={subject.name: _eager(subject) for subject in subjects},
        repro=folder / "repro",
    )
    return check_folder(folder, document, check)


def _eager(subject: Subject) -> Callable[[Tensors], object]:
    call = subject.eager()
    return lambda inputs: call({name: torch.from_numpy(x) for name, x in inputs.items()})


def _record(folder: Path, document: Manifest, report: Report) -> None:
    """Write what the checks found into the manifest, and take back unproven claims."""
    for artifact, result in zip(document.artifacts, report.artifacts, strict=True):
        artifact.verdict = result.exit_code.name
        artifact.axis("sequence").verified = result.verified_sequence
        artifact.axis("batch").verified = result.verified_batch
        artifact.checks = [
            RuntimeCheck(
                runtime=runtime.runtime,
                status=runtime.exit_code.name,
                multiple=runtime.multiple,
                cases=len(runtime.cases),
            )
            for runtime in result.runtimes
        ]
        artifact.latency = _latency(report, result)
        if artifact.format == "onnx" and result.verified_sequence is None:
            claims = ("linattn.verified_sequence", "linattn.verified_batch")
            stamp(folder / artifact.path, dict.fromkeys(claims, UNVERIFIED))
            fresh = stored(folder, artifact.path)
            artifact.sha256, artifact.bytes = fresh.sha256, fresh.bytes
            result.bytes = fresh.bytes
    document.verdict = report.verdict


def _latency(report: Report, result: ArtifactResult) -> list[LatencyEntry]:
    if report.latency is None:
        return []
    key = (result.model, result.method, result.format, result.variant)
    return [
        LatencyEntry(
            runtime=entry.runtime,
            batch=entry.batch,
            sequence=entry.sequence,
            p50_ms=entry.p50_ms,
            p90_ms=entry.p90_ms,
        )
        for entry in report.latency.results
        if (entry.model, entry.method, entry.format, entry.variant) == key
    ]


def command_of(request: BuildRequest) -> list[str]:
    """The command line that makes the same folder, without paths of this machine."""
    words = ["linattn-export", "build"]

    def add(flag: str, *values: object) -> None:
        for value in values:
            words.extend([flag, str(value)])

    add("--method", *request.methods)
    add("--model", *request.models)
    add("--format", *request.formats)
    if request.lengths is not None:
        add("--seq-len", *request.lengths)
        words.extend([] if request.lengths else ["--no-fixed"])
    if request.dynamic is not None:
        words.extend(["--dynamic", request.dynamic] if request.dynamic else ["--no-dynamic"])
    add("--batch", request.batch)
    if request.mask is not None:
        words.append("--mask" if request.mask else "--no-mask")
    for flag, value in (("--d-model", request.d_model), ("--heads", request.heads)):
        if value is not None:
            add(flag, value)
    for method, options in request.options.items():
        add("--option", *(f"{method}.{name}={value}" for name, value in options.items()))
    if request.weights is not None:
        add("--weights", request.weights.name)
    add("--seed", request.seed)
    add("--opset", request.opset)
    add("--dtype", request.dtype)
    return words
