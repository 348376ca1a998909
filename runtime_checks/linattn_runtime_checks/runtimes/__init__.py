"""The table of runtimes: one line each."""

from linattn_runtime_checks.contract.errors import EnvironmentProblem, UsageError, unknown
from linattn_runtime_checks.runtimes.base import Runtime
from linattn_runtime_checks.runtimes.onnx_runtime import ORT_CPU, ORT_CUDA, conflict
from linattn_runtime_checks.runtimes.torch_runtimes import PT2, TORCHSCRIPT

RUNTIMES: dict[str, Runtime] = {
    record.name: record for record in (ORT_CPU, ORT_CUDA, TORCHSCRIPT, PT2)
}


def choose(names: tuple[str, ...]) -> tuple[list[Runtime], dict[str, str]]:
    """The runtimes to use, and for every other one why it is left out.

    Args:
        names: what was asked for; empty means whatever is available.

    Raises:
        UsageError: a name is unknown.
        EnvironmentProblem: one that was asked for is not available, or two ONNX Runtimes are
            installed over each other.
    """
    for name in names:
        if name not in RUNTIMES:
            raise UsageError(unknown("runtime", name, RUNTIMES))
    onnx_wanted = not names or {ORT_CPU.name, ORT_CUDA.name} & set(names)
    if onnx_wanted and (problem := conflict()) is not None:
        raise EnvironmentProblem(problem)
    chosen, left_out = [], {}
    for name, runtime in RUNTIMES.items():
        if names and name not in names:
            left_out[name] = "not asked for"
            continue
        reason = runtime.unavailable()
        if reason is None:
            chosen.append(runtime)
        elif names:
            raise EnvironmentProblem(f"runtime {name} is not available: {reason}")
        else:
            left_out[name] = reason
    return chosen, left_out
