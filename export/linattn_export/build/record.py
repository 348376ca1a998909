"""What the manifest and an ONNX file say of an artifact: when it is written, and once judged."""

import json
from collections.abc import Sequence
from pathlib import Path

from linattn_export.formats import FORMATS
from linattn_export.formats.base import Format, Job, Written
from linattn_export.inputs.cases import verified_batch
from linattn_export.options.variants import Variant
from linattn_runtime_checks.contract.checked import LatencyEntry, RuntimeCheck
from linattn_runtime_checks.contract.integrity import stored
from linattn_runtime_checks.contract.manifest import (
    LABELS,
    Artifact,
    AxisRange,
    Manifest,
    StateLink,
    StoredFile,
)
from linattn_runtime_checks.results.report import ArtifactResult, Report

_NOT_VERIFIED = "none"
_MASK = "attention_mask: bool, True = a real token"


def entry_of(
    job: Job,
    kind: Format,
    files: Sequence[StoredFile],
    written: Written,
    place: str,
    reference: str,
) -> Artifact:
    """The entry of an artifact that was written and not judged yet; its own file comes first."""
    file, *beside = files
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
        entry=job.subject.graph,
        form=job.variant.form,
        states=state_links(job),
        dtype=job.dtype,
        parameters=sum(tensor.numel() for tensor in tensors),
        weight_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        nodes=written.nodes,
        op_histogram=written.op_histogram,
        opsets=written.opsets,
        ir_version=written.ir_version,
        inputs=inputs,
        outputs=outputs,
        labels=list(job.subject.model.labels),
        axes=[_axis(job.variant, name) for name in ("batch", "sequence")],
        side_files=beside,
        reference=reference,
        cost=job.subject.traits.cost,
        equivariant=job.subject.traits.equivariant,
        block=job.subject.traits.block,
        causal=job.subject.traits.causal,
        padding=next((spec.padding for spec in job.subject.inputs if spec.kind == "mask"), "any"),
        nan_padding=job.subject.traits.nan_padding,
        finite=job.subject.traits.finite,
        notes=[*job.subject.notes, *written.notes],
    )


def state_links(job: Job) -> list[StateLink]:
    """Which output goes back to which input."""
    inputs, outputs = ({spec.name: spec for spec in specs} for specs in job.specs())
    return [
        StateLink(
            input=f"past_{state.name}",
            output=f"present_{state.name}",
            shape=outputs[f"present_{state.name}"].shape,
            dtype=inputs[f"past_{state.name}"].dtype,
            layout=state.layout,
        )
        for state in job.subject.states
    ]


def _axis(variant: Variant, name: str) -> AxisRange:
    size = variant.size(name)
    return AxisRange(name=name, declared=(size.low, size.high), captured=variant.captured[name])


def metadata_of(job: Job, version: str) -> dict[str, str]:
    """What an ONNX file says of itself. The range is what the checks below will have run.

    If they do not pass, or are not run, :func:`record` replaces it; so the bytes that were
    checked are the bytes that ship.
    """
    links = [link.model_dump() for link in state_links(job)]
    states = {"linattn.states": json.dumps(links)} if links else {}
    if job.subject.traits.recurrent:
        states["linattn.form"] = job.variant.form
    if job.subject.model.labels:
        states[LABELS] = json.dumps(job.subject.model.labels)
    return states | {
        "linattn.method": job.subject.method,
        "linattn.entry": job.subject.graph,
        "linattn.model": job.subject.model.name,
        "linattn.config": json.dumps(job.subject.config(job.entry), sort_keys=True),
        "linattn.mask": _MASK if job.subject.masked else "none",
        "linattn.declared_sequence": str(job.variant.sequence),
        "linattn.verified_sequence": str(job.variant.sequence),
        "linattn.declared_batch": str(job.variant.batch),
        "linattn.verified_batch": _span(verified_batch(job.variant)),
        "linattn.version": version,
    }


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]}:{ends[1]}" if ends[0] < ends[1] else str(ends[0])


def record(folder: Path, document: Manifest, report: Report) -> None:
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
                metric=None if runtime.task is None else runtime.task.metric,
                score=None if runtime.task is None else runtime.task.score,
            )
            for runtime in result.runtimes
        ]
        artifact.latency = _latency(report, result)
        stamp = FORMATS[artifact.format].stamp
        if stamp is not None and result.verified_sequence is None:
            claims = ("linattn.verified_sequence", "linattn.verified_batch")
            stamp(folder / artifact.path, dict.fromkeys(claims, _NOT_VERIFIED))
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
