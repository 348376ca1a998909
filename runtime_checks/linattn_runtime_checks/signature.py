"""Does a file declare the inputs, outputs and axes that the manifest promises?"""

from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.manifest import Artifact, TensorSpec
from linattn_runtime_checks.report.model import Finding
from linattn_runtime_checks.runtimes.base import ANY_SYMBOL

Signature = tuple[list[TensorSpec], list[TensorSpec]]


def check_signature(artifact: Artifact, found: Signature) -> list[Finding]:
    """Everything in which the file's own signature departs from the manifest's."""
    findings = []
    for kind, promised, declared in (
        ("input", artifact.inputs, found[0]),
        ("output", artifact.outputs, found[1]),
    ):
        names = [spec.name for spec in promised]
        if names != [spec.name for spec in declared]:
            findings.append(
                Finding.of(
                    Code.INPUTS_DIFFER if kind == "input" else Code.OUTPUTS_DIFFER,
                    f"{artifact.id}: {kind}s are {[s.name for s in declared]}, promised {names}",
                )
            )
            continue
        for expected, got in zip(promised, declared, strict=True):
            findings += _check_tensor(artifact, kind, expected, got)
    return findings


def static_axes(artifact: Artifact, found: Signature) -> set[str]:
    """The promised symbols for which the file has a number."""
    return {
        wanted
        for promised, declared in zip((artifact.inputs, artifact.outputs), found, strict=True)
        for expected, got in zip(promised, declared, strict=False)
        for wanted, axis in zip(expected.shape, got.shape, strict=False)
        if isinstance(wanted, str) and isinstance(axis, int)
    }


def _check_tensor(
    artifact: Artifact, kind: str, expected: TensorSpec, got: TensorSpec
) -> list[Finding]:
    where = f"{artifact.id}: {kind} {expected.name}"
    findings = []
    if expected.dtype != got.dtype:
        message = f"{where} is {got.dtype}, promised {expected.dtype}"
        findings.append(Finding.of(Code.DTYPE_MISMATCH, message))
    if len(expected.shape) != len(got.shape):
        message = f"{where} has shape {got.shape}, promised {expected.shape}"
        return [*findings, Finding.of(Code.SHAPE_MISMATCH, message)]
    for index, (wanted, axis) in enumerate(zip(expected.shape, got.shape, strict=True)):
        if isinstance(wanted, str) and isinstance(axis, int):
            message = f"{where}: axis {index} ({wanted}) became static: {axis}"
            findings.append(Finding.of(Code.AXIS_BECAME_STATIC, message))
        elif isinstance(wanted, str) and axis not in (wanted, ANY_SYMBOL):
            message = f"{where}: axis {index} ({wanted}) was renamed to {axis!r}"
            findings.append(Finding.of(Code.AXIS_RENAMED, message))
        elif isinstance(wanted, int) and axis != wanted:
            message = f"{where}: axis {index} is {axis!r}, promised {wanted}"
            findings.append(Finding.of(Code.AXIS_NOT_FIXED, message))
    return findings
