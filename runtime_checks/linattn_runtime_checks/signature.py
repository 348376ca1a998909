"""Does a file declare the inputs, outputs and axes that the manifest promises?"""

from linattn_runtime_checks.errors import ExitCode
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
                _finding(
                    f"{kind}s_differ",
                    f"{artifact.id}: {kind}s are {[s.name for s in declared]}, promised {names}",
                )
            )
            continue
        for expected, got in zip(promised, declared, strict=True):
            findings += _check_tensor(artifact, kind, expected, got)
    return findings


def _check_tensor(
    artifact: Artifact, kind: str, expected: TensorSpec, got: TensorSpec
) -> list[Finding]:
    where = f"{artifact.id}: {kind} {expected.name}"
    findings = []
    if expected.dtype != got.dtype:
        message = f"{where} is {got.dtype}, promised {expected.dtype}"
        findings.append(_finding("dtype_mismatch", message))
    if len(expected.shape) != len(got.shape):
        message = f"{where} has shape {got.shape}, promised {expected.shape}"
        return [*findings, _finding("shape_mismatch", message)]
    for index, (wanted, axis) in enumerate(zip(expected.shape, got.shape, strict=True)):
        if isinstance(wanted, str) and isinstance(axis, int):
            message = f"{where}: axis {index} ({wanted}) became static: {axis}"
            findings.append(_finding("axis_became_static", message))
        elif isinstance(wanted, str) and axis not in (wanted, ANY_SYMBOL):
            message = f"{where}: axis {index} ({wanted}) was renamed to {axis!r}"
            findings.append(_finding("axis_renamed", message))
        elif isinstance(wanted, int) and axis != wanted:
            message = f"{where}: axis {index} is {axis!r}, promised {wanted}"
            findings.append(_finding("axis_not_fixed", message))
    return findings


def _finding(code: str, message: str) -> Finding:
    return Finding(code=code, message=message, exit_code=ExitCode.PARITY)
