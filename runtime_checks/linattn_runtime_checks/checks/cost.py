"""No tensor grows faster with the length than the method promises."""

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.cost.certificate import CostCertificate

_WORSE = ("linear", "unknown", "quadratic")


def _run(context: Context) -> list[Problem] | None:
    certify = context.runtime.certify
    if certify is None or not context.measure_cost:
        return None
    certificates = certify(context.path, context.artifact, context.session)
    if not certificates:
        return None
    worst = max(certificates, key=lambda certificate: _WORSE.index(certificate.kind))
    context.result.cost = worst
    return broken_promise(context.artifact.cost, worst)


def broken_promise(promised: str | None, found: CostCertificate) -> list[Problem]:
    """The problem of a certificate that breaks a promise, or says nothing."""
    if found.kind == "quadratic" and promised == "linear":
        tensor = found.quadratic[0]
        shape = " x ".join(map(str, tensor.shape))
        message = f"node {tensor.node} ({tensor.op}) makes {tensor.name}, {shape}"
        return [Problem(code=Code.QUADRATIC_COST, message=message)]
    if found.kind == "unknown":
        return [Problem(code=Code.COST_UNKNOWN, message=found.note)]
    return []


COST = Check(
    name="cost",
    title="no tensor grows faster with the length than the method promises",
    codes=(Code.QUADRATIC_COST, Code.COST_UNKNOWN),
    applies=lambda artifact, runtime, index: runtime.certify is not None,
    run=_run,
)
