"""Does a file declare the inputs, outputs and axes that the manifest promises?"""

from linattn_runtime_checks.checks.base import Check, Context, Problem, When
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.manifest import Artifact, TensorSpec
from linattn_runtime_checks.runtimes.base import ANY_SYMBOL, Signature


def _run(context: Context) -> list[Problem] | None:
    found = context.signature
    return None if found is None else check_signature(context.artifact, found)


def check_signature(artifact: Artifact, found: Signature) -> list[Problem]:
    """Everything in which the file's own signature departs from the manifest's."""
    problems = []
    for kind, promised, declared in (
        ("input", artifact.inputs, found[0]),
        ("output", artifact.outputs, found[1]),
    ):
        names = [spec.name for spec in promised]
        if names != [spec.name for spec in declared]:
            code = Code.INPUTS_DIFFER if kind == "input" else Code.OUTPUTS_DIFFER
            message = f"{kind}s are {[s.name for s in declared]}, promised {names}"
            problems.append(Problem(code=code, message=message))
            continue
        for expected, got in zip(promised, declared, strict=True):
            problems += _check_tensor(kind, expected, got)
    return problems


def static_axes(artifact: Artifact, found: Signature) -> set[str]:
    """The promised symbols for which the file has a number."""
    return {
        wanted
        for promised, declared in zip((artifact.inputs, artifact.outputs), found, strict=True)
        for expected, got in zip(promised, declared, strict=False)
        for wanted, axis in zip(expected.shape, got.shape, strict=False)
        if isinstance(wanted, str) and isinstance(axis, int)
    }


def _check_tensor(kind: str, expected: TensorSpec, got: TensorSpec) -> list[Problem]:
    where = f"{kind} {expected.name}"
    problems = []
    if expected.dtype != got.dtype:
        message = f"{where} is {got.dtype}, promised {expected.dtype}"
        problems.append(Problem(code=Code.DTYPE_MISMATCH, message=message))
    if len(expected.shape) != len(got.shape):
        message = f"{where} has shape {got.shape}, promised {expected.shape}"
        return [*problems, Problem(code=Code.SHAPE_MISMATCH, message=message)]
    for index, (wanted, axis) in enumerate(zip(expected.shape, got.shape, strict=True)):
        if isinstance(wanted, str) and isinstance(axis, int):
            message = f"{where}: axis {index} ({wanted}) became static: {axis}"
            problems.append(Problem(code=Code.AXIS_BECAME_STATIC, message=message))
        elif isinstance(wanted, str) and axis not in (wanted, ANY_SYMBOL):
            message = f"{where}: axis {index} ({wanted}) was renamed to {axis!r}"
            problems.append(Problem(code=Code.AXIS_RENAMED, message=message))
        elif isinstance(wanted, int) and axis != wanted:
            message = f"{where}: axis {index} is {axis!r}, promised {wanted}"
            problems.append(Problem(code=Code.AXIS_NOT_FIXED, message=message))
    return problems


SIGNATURE = Check(
    name="signature",
    title="the file declares the inputs, outputs and axes that the manifest promises",
    codes=(
        Code.INPUTS_DIFFER,
        Code.OUTPUTS_DIFFER,
        Code.DTYPE_MISMATCH,
        Code.SHAPE_MISMATCH,
        Code.AXIS_BECAME_STATIC,
        Code.AXIS_RENAMED,
        Code.AXIS_NOT_FIXED,
    ),
    when=When.FIRST_MODE,
    applies=lambda artifact, runtime, index: runtime.declares_shapes,
    run=_run,
    faults=(
        "batch-static",
        "length-static",
        "axis-renamed",
        "length-not-refused",
        "output-renamed",
    ),
)
