"""Reports of artifacts with what each check found, made by hand."""

from folders import DYNAMIC
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.results.report import (
    ArtifactResult,
    CaseResult,
    Finding,
    Report,
    RuntimeResult,
)


def case(code: Code = Code.PASS, message: str = "", **values: object) -> CaseResult:
    known = {"mode": "optimizer-on", "case": "normal-b1-n16", "family": "normal"}
    sizes = {"batch": 1, "sequence": 16, "code": code, "message": message, "multiple": 1.0}
    return CaseResult.model_validate(known | sizes | values)


def artifact(*runtimes: RuntimeResult, name: str = DYNAMIC, high: int = 64) -> ArtifactResult:
    model, method, form, variant = name.split("/")
    return ArtifactResult(
        id=name,
        model=model,
        method=method,
        format=form,
        variant=variant,
        bytes=1,
        parameters=1,
        nodes=1,
        declared_sequence=(16, high),
        runtimes=list(runtimes),
    )


def report(*artifacts: ArtifactResult, findings: tuple[Finding, ...] = ()) -> Report:
    found = Report(
        environment={},
        runtimes=["ort-cpu"],
        left_out={"ort-cuda": "no CUDAExecutionProvider", "torchscript": "torch is not installed"},
        artifacts=list(artifacts),
        findings=list(findings),
    )
    found.settle(unjudged_is_unverified=False)
    return found
