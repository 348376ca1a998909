"""The checks in a report: how often each passed, noted something and failed."""

from collections import Counter

from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.contract.codes import fails_nothing
from linattn_runtime_checks.report.table import Table
from linattn_runtime_checks.results.report import Report


def check_table(report: Report) -> Table:
    """Every check that had its turn, in the order of the table of checks.

    What compares case by case is counted by artifact and runtime here, as all others are.
    """
    passed: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for artifact in report.artifacts:
        for result in artifact.runtimes:
            wrong = {f.check for f in result.findings if not fails_nothing(f.code)}
            notes = {f.check for f in result.findings if fails_nothing(f.code)} - wrong
            done = {check.name for check in result.checks} | wrong | notes
            failed.update(wrong)
            noted.update(notes)
            passed.update(done - wrong - notes)
        for finding in artifact.findings:
            (noted if fails_nothing(finding.code) else failed)[finding.check] += 1
    for finding in (*report.findings, *report.against.findings):
        failed[finding.check] += not fails_nothing(finding.code)
    total = passed + noted + failed
    return Table(
        title="Checks",
        headings=("check", "what holds where it passes", "passed", "noted", "failed"),
        rows=[
            (check.name, check.title, *(str(n[check.name]) for n in (passed, noted, failed)))
            for check in CHECKS.values()
            if total[check.name]
        ],
        note="counted once for each artifact and runtime; noted: something to know, which fails "
        "nothing",
    )
