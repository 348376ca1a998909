"""Lets a check have its turn, and records what became of it."""

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import gravest
from linattn_runtime_checks.results.report import CheckResult, RuntimeResult
from linattn_runtime_checks.runtimes.base import RunFailed


def perform(check: Check, context: Context) -> None:
    """Have ``check`` look at the artifact; its findings and its outcome go into the result.

    An input that does not run is a finding of the check that tried it; the others go on.
    """
    index = context.reference.index
    if check.run is None or not check.applies(context.artifact, context.runtime, index):
        return
    context.tell(f"{check.name} ({context.mode})")
    try:
        problems = check.run(context)
    except RunFailed as error:
        problems = [Problem(code=Code.RUN_FAILED, message=str(error))]
    if problems is None:
        return
    for problem in problems:
        place = problem.place or f"{context.where}: {check.name}"
        finding = check.finding(problem.code, f"{place}: {problem.message}")
        context.result.findings.append(finding)
        record(context.result, check, problem.code, problem.message)
    if not problems:
        record(context.result, check, Code.PASS)


def record(result: RuntimeResult, check: Check, code: Code, message: str = "") -> None:
    """Note the outcome of ``check``: of several, from its modes or its problems, the gravest."""
    outcome = CheckResult(name=check.name, code=code, message=message)
    for place, known in enumerate(result.checks):
        if known.name == check.name:
            both = [CODES[known.code].exit_code, CODES[code].exit_code]
            if known.code is Code.PASS or gravest(both) is not both[0]:
                result.checks[place] = outcome
            return
    result.checks.append(outcome)
