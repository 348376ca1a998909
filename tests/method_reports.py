"""Reports of methods side by side, made by hand."""

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.latency.table import crossovers
from linattn_runtime_checks.results.latency import LatencyResult, LatencyTable
from linattn_runtime_checks.results.report import (
    ArtifactResult,
    CaseResult,
    Finding,
    Report,
    RuntimeResult,
    TaskResult,
)


def artifact(method: str, code: Code = Code.PASS, *, judged: bool = True) -> ArtifactResult:
    case = CaseResult(
        mode="optimizer-on",
        case="normal-b1-n16",
        family="normal",
        batch=1,
        sequence=16,
        code=code,
        multiple=1.5 if code is Code.PASS else 9.0,
        row_error=3e-7,
    )
    findings = []
    if code is not Code.PASS:
        message = f"layer/{method}: lengths 16; worst | element [0, 1]"
        findings = [Finding(code=code, message=message, exit_code=ExitCode.PARITY)]
    runtime = RuntimeResult(
        runtime="ort-cpu",
        cases=[case] if judged else [],
        findings=findings,
        session_ms=3.0,
        task=TaskResult(
            metric="top1", score=0.975, reference_score=0.975, allowed=0.003, samples=360
        ),
    )
    return ArtifactResult(
        id=f"layer/{method}/onnx/dynamic",
        model="layer",
        method=method,
        format="onnx",
        variant="dynamic",
        bytes=1_077_000,
        parameters=263_168,
        nodes=33,
        declared_sequence=(1, 4096),
        verified_sequence=(1, 4096) if code is Code.PASS else None,
        lengths=[1, 4096],
        runtimes=[runtime] if judged else [],
    )


def latency(method: str, sequence: int, p50: float, runtime: str = "ort-cpu") -> LatencyResult:
    return LatencyResult(
        model="layer",
        method=method,
        format="onnx",
        variant="dynamic",
        runtime=runtime,
        batch=1,
        sequence=sequence,
        runs=20,
        first_ms=2 * p50,
        min_ms=p50,
        p50_ms=p50,
        p90_ms=1.25 * p50,
        p99_ms=1.5 * p50,
        low_ms=0.9 * p50,
        high_ms=1.1 * p50,
    )


def report(*artifacts: ArtifactResult) -> Report:
    results = [latency("softmax", 16, 1.0), latency("softmax", 4096, 100.0)]
    results += [latency("elu", 16, 2.0), latency("elu", 4096, 20.0)]
    results += [latency("elu", 4096, 40.0, "eager")]
    found = Report(
        environment={"python": "3.11.7", "cores": 2},
        runtimes=["ort-cpu"],
        left_out={"ort-cuda": "no CUDAExecutionProvider", "pt2": "not asked for"},
        artifacts=list(artifacts),
        latency=LatencyTable(
            threads=2,
            load_before=0.1,
            load_after=1.9,
            machine_ms={16: 1.0, 4096: 1.0},
            results=results,
            crossovers=crossovers(results),
        ),
    )
    found.settle(unjudged_is_unverified=False)
    return found
