"""Which nodes ran where, read from ONNX Runtime's own profile of a run.

A session lists the execution providers that it may use; only the profile says which one ran each
node. Nodes that compute sizes may stay on the CPU beside CUDA; products and softmaxes may not.
"""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from linattn_runtime_checks.contract.errors import EnvironmentProblem
from linattn_runtime_checks.runtimes.base import RunFailed, Tensors

_HEAVY = {
    "Attention", "Conv", "Einsum", "FusedGemm", "FusedMatMul", "Gemm", "LinearAttention", "MatMul",
    "MultiHeadAttention", "Softmax",
}  # fmt: skip
_TAIL = "_kernel_time"


class Placement(BaseModel):
    """Where the nodes of one run were.

    Attributes:
        provider: that was asked for.
        nodes: execution provider to the number of nodes that it ran.
        elsewhere: operators that another provider ran, with their number.
        casts_inserted: Cast nodes beyond those of the file; the runtime adds them where a provider
            has no kernel for a type, and they cost time and accuracy.
        copies: copies between the memories of two providers.
        tf32: whether float32 products may keep 10 bits of mantissa; None where there is no such
            thing, as on a CPU.
    """

    provider: str
    nodes: dict[str, int]
    elsewhere: dict[str, int]
    casts_inserted: int
    copies: int
    tf32: bool | None

    def line(self) -> str:
        """For people."""
        ran = ", ".join(f"{count} on {name}" for name, count in sorted(self.nodes.items()))
        tf32 = {None: "", True: ", TF32 on", False: ", TF32 off"}[self.tf32]
        return f"{ran}; {self.casts_inserted} casts inserted, {self.copies} copies{tf32}"


def prove(open_profiled: Any, inputs: Tensors, provider: str, casts_in_file: int) -> Placement:
    """Run ``inputs`` once with the profiler on and read where every node was.

    Args:
        open_profiled: ``open_profiled(prefix)`` opens an onnxruntime session that writes its
            profile to files beginning with ``prefix``.
        inputs: of the run.
        provider: that was asked for.
        casts_in_file: Cast nodes that the file itself holds.

    Raises:
        RunFailed: it does not run.
        EnvironmentProblem: a product or softmax, or everything, ran on another provider, or the
            run left no profile to tell.
    """
    with tempfile.TemporaryDirectory(prefix="linattn-profile-") as folder:
        session = open_profiled(str(Path(folder) / "run"))
        try:
            session.run(None, inputs)
        except Exception as error:
            raise RunFailed(str(error)) from error
        try:
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise EnvironmentProblem(
                f"where the nodes ran cannot be proven: ONNX Runtime left no profile that can be "
                f"read ({error}); make room in the folder for temporary files"
            ) from error
        tf32 = _tf32(session.get_provider_options().get(provider, {}))
    placement = read(events, provider, casts_in_file, tf32)
    require(placement)
    return placement


def read(
    events: list[dict[str, Any]], provider: str, casts_in_file: int, tf32: bool | None
) -> Placement:
    """The placement in the events of a profile; see :func:`prove`."""
    ran = {
        event["name"]: (event["args"]["op_name"], event["args"]["provider"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith(_TAIL)
    }
    operators = Counter(op for op, _ in ran.values())
    elsewhere = Counter(op for op, where in ran.values() if where != provider)
    return Placement(
        provider=provider,
        nodes=dict(sorted(Counter(where for _, where in ran.values()).items())),
        elsewhere=dict(sorted(elsewhere.items())),
        casts_inserted=max(operators["Cast"] - casts_in_file, 0),
        copies=operators["MemcpyFromHost"] + operators["MemcpyToHost"],
        tf32=tf32,
    )


def require(placement: Placement) -> None:
    """Refuse a run whose work was done elsewhere.

    Raises:
        EnvironmentProblem: no node ran on the provider, or a heavy one ran on another.
    """
    heavy = sorted(_HEAVY & set(placement.elsewhere))
    if placement.nodes.get(placement.provider) and not heavy:
        return
    what = ", ".join(heavy) if heavy else "every node"
    raise EnvironmentProblem(
        f"{placement.provider} was asked for, but {what} ran elsewhere ({placement.line()}); "
        "check that the installed onnxruntime has kernels for this opset on that provider"
    )


def _tf32(options: dict[str, str]) -> bool | None:
    return options["use_tf32"] == "1" if "use_tf32" in options else None
