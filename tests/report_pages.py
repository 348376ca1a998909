"""Reports that the tests of ``report.html`` render: one that passes, one that fails, one in part.

They are written down here and not measured, so that a test knows every number on the page.
"""

from typing import Any

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.manifest import Manifest
from linattn_runtime_checks.cost.exponent import Exponent
from linattn_runtime_checks.results.latency import LatencyResult, LatencyTable
from linattn_runtime_checks.results.report import (
    ArtifactResult,
    CaseResult,
    CheckResult,
    Finding,
    Report,
    RuntimeResult,
)

LENGTHS = (64, 256, 1024, 4096)
FAMILIES = ("normal", "scale=100", "zero-rows")
SUFFIXES = {"onnx": "model.onnx", "torchscript": "model.pt", "pt2": "model.pt2"}
RUNS_ON = {"onnx": "ort-cpu", "torchscript": "torchscript", "pt2": "pt2"}


def case(
    family: str = "normal", code: Code = Code.PASS, multiple: float | None = 1.5, **more: Any
) -> CaseResult:
    """One comparison."""
    fields: dict[str, Any] = {
        "mode": "optimizer-on",
        "case": f"{family}-b1-n64",
        "batch": 1,
        "sequence": 64,
    }
    return CaseResult(**fields | more, family=family, code=code, multiple=multiple)


def artifact(
    method: str = "elu",
    *,
    model: str = "layer",
    kind: str = "onnx",
    variant: str = "dynamic",
    cases: list[CaseResult] | None = None,
    findings: tuple[Finding, ...] = (),
    judged: bool = True,
    size: int = 1_050_000,
) -> ArtifactResult:
    """One artifact on the runtime of its format; judged ones have a case of each family."""
    result = RuntimeResult(
        runtime=RUNS_ON[kind],
        cases=[case(family) for family in FAMILIES] if cases is None else cases,
        checks=[CheckResult(name="deterministic", code=Code.PASS)],
        findings=list(findings),
        peak_bytes={n: n * 4000 for n in LENGTHS} if variant == "dynamic" else {},
        memory_exponent=Exponent(value=1.0, low=0.9, high=1.1, lengths=list(LENGTHS)),
        session_ms=8.0,
    )
    fixed = variant != "dynamic"
    return ArtifactResult(
        id=f"{model}/{method}/{kind}/{variant}",
        model=model,
        method=method,
        format=kind,
        variant=variant,
        bytes=size,
        parameters=263168,
        nodes=42,
        declared_sequence=(int(variant[1:]),) * 2 if fixed else (1, 4096),
        declared_batch=(1, 64),
        verified_sequence=(1, 4096) if judged and not fixed else None,
        verified_batch=(1, 64) if judged else None,
        lengths=list(LENGTHS) if judged else [],
        runtimes=[result] if judged else [],
    )


def timed(
    method: str, runtime: str, sequence: int, p50: float, *, variant: str = "dynamic", **more: Any
) -> LatencyResult:
    """A median with an interval of a twentieth to each side."""
    kinds = {"ort-cpu": "onnx", "eager": "eager"}
    fields: dict[str, Any] = {
        "model": "layer", "format": kinds.get(runtime, runtime), "batch": 1, "runs": 40,
        "first_ms": 2 * p50, "min_ms": 0.9 * p50, "p90_ms": 1.2 * p50, "p99_ms": 1.5 * p50,
        "low_ms": 0.95 * p50, "high_ms": 1.05 * p50,
    }  # fmt: skip
    own = {"method": method, "runtime": runtime, "variant": variant, "sequence": sequence}
    return LatencyResult(**fields | own | {"p50_ms": p50} | more)


def latency(methods: tuple[str, ...], lengths: tuple[int, ...] = LENGTHS) -> LatencyTable:
    """Of the ONNX artifacts: softmax grows as the square, all else in proportion, from one point.

    At 64 tokens all are alike, so no ratio is conclusive there.
    """
    results = [
        timed(method, "ort-cpu", n, 0.4 * (n / 64) ** (2 if method == "softmax" else 1))
        for method in methods
        for n in lengths
    ]
    powers = {method: 2.0 if method == "softmax" else 1.0 for method in methods}
    exponents = {
        f"ort-cpu/layer/{method}": Exponent(
            value=power, low=power - 0.1, high=power + 0.1, lengths=list(lengths)
        )
        for method, power in powers.items()
        if len(lengths) > 2
    }
    crossovers: dict[str, int | None] = {
        f"ort-cpu/layer/{method}": 256 if len(lengths) > 1 else None
        for method in methods
        if method != "softmax"
    }
    return LatencyTable(threads=2, load_before=0.5, load_after=0.6, results=results,
                        machine_ms=dict.fromkeys(lengths, 2.0),
                        exponents=exponents, crossovers=crossovers)  # fmt: skip


def report(artifacts: list[ArtifactResult], **more: Any) -> Report:
    """A report of ``artifacts``, with the verdict that follows from them."""
    fields: dict[str, Any] = {
        "environment": {"python": "3.11.7", "cores": 2, "omp_wait_policy": None},
        "runtimes": ["ort-cpu", "torchscript", "pt2"],
        "left_out": {"ort-cuda": "onnxruntime has no CUDAExecutionProvider"},
        "seconds": 12.0,
    }
    made = Report(**fields | {"artifacts": artifacts} | more)
    made.settle(unjudged_is_unverified=False)
    return made


def passing() -> Report:
    """All methods and formats pass, with latency, and with a note that fails nothing."""
    note = Finding.of(
        Code.COST_UNKNOWN, "layer/elu/onnx/n64: 64 may be a width or the length", check="parity"
    )
    made = [
        artifact(method, kind=kind, variant=variant, size=1_000_000 + 1000 * number,
                 findings=(note,) if (method, variant) == ("elu", "n64") else ())
        for number, (method, kind, variant) in enumerate(
            (method, kind, variant)
            for method in ("softmax", "efficient", "elu")
            for kind in SUFFIXES
            for variant in ("dynamic", "n64")
        )
    ]  # fmt: skip
    return report(made, latency=latency(("softmax", "efficient", "elu")))


def failing() -> Report:
    """One method has wrong numbers on two families, a file is damaged, and there is blame."""
    found = [
        case("normal", Code.PARITY_EXCEEDED, 8324.0, message="8.3e+03x the rounding"),
        case("scale=100", Code.PRECISION_LOST, None, rounding=0.12),
        case("zero-rows", Code.NONFINITE_OUTPUT, None),
    ]
    finding = Finding.of(
        Code.PARITY_EXCEEDED, "layer/elu/onnx/dynamic on ort-cpu: 8.3e+03x", check="parity"
    )
    wrong = artifact(cases=found, findings=(finding,))
    wrong.runtimes[0].blame = "first departs: onnx; right before it: eager"
    wrong.runtimes[0].repro = "layer-elu-onnx-dynamic-ort-cpu"
    damaged = Finding.of(
        Code.FILE_DAMAGED, "layer/softmax/pt2/dynamic/model.pt2 was altered", check="parity"
    )
    return report(
        [artifact("softmax"), artifact("softmax", kind="pt2", judged=False), wrong],
        findings=[damaged],
        latency=latency(("softmax",)),
    )


def partly() -> Report:
    """Only ONNX artifacts were judged, and nothing was timed: half of it is unavailable."""
    made = [
        artifact(method, kind=kind, judged=kind == "onnx")
        for method in ("softmax", "elu")
        for kind in SUFFIXES
    ]
    reason = "torch is not installed; run: pip install 'linattn[export]'"
    return report(made, runtimes=["ort-cpu"], left_out={"torchscript": reason, "pt2": reason})


def manifest(shown: Report, *, names: tuple[str, ...] = ("hidden_states",)) -> Manifest:
    """The manifest of the folder that ``shown`` is about; all inputs after the first are masks."""
    reference = {"path": "layer/reference.safetensors", "sha256": "0" * 64, "bytes": 1}
    artifacts = []
    for each in shown.artifacts:
        low, high = each.declared_sequence
        sequence: int | str = low if low == high else "sequence"
        hidden = {"dtype": "float32", "shape": ["batch", sequence, 256]}
        mask = {"dtype": "bool", "shape": ["batch", sequence]}
        artifacts.append(
            {
                "id": each.id, "path": f"{each.id}/{SUFFIXES[each.format]}", "sha256": "0" * 64,
                "bytes": each.bytes, "model": each.model, "method": each.method, "config": {},
                "format": each.format, "variant": each.variant, "dtype": "float32",
                "parameters": each.parameters, "weight_bytes": 1,
                "inputs": [{"name": name, **(mask if index else hidden)}
                           for index, name in enumerate(names)],
                "outputs": [{"name": "output", **hidden}],
                "axes": [{"name": "batch", "declared": [1, 64], "captured": 6},
                         {"name": "sequence", "declared": [low, high], "captured": low}],
                "reference": reference["path"],
            }
        )  # fmt: skip
    return Manifest.model_validate(
        {
            "schema_version": "1.1", "tool": {"name": "linattn-export", "version": "0.1.0"},
            "command": [], "seed": 0, "environment": {}, "artifacts": artifacts,
            "references": [reference], "test_data": [], "verdict": shown.verdict,
        }
    )  # fmt: skip
