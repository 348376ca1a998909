"""``--fail-on``."""

import pytest

from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode, UsageError
from linattn_runtime_checks.judging.policy import parse_fail_on
from linattn_runtime_checks.results.report import Finding, Report
from method_reports import artifact, report


def with_findings(*codes: Code) -> Report:
    found = report(artifact("elu"))
    found.findings = [Finding.of(code, "", check="parity") for code in codes]
    found.settle(unjudged_is_unverified=False)
    return found


@pytest.mark.parametrize(
    ("text", "codes", "expected"),
    [
        (None, [Code.PARITY_EXCEEDED], ExitCode.PARITY),
        (None, [Code.PRECISION_LOST], ExitCode.PASS),
        (None, [], ExitCode.PASS),
        ("parity", [Code.PARITY_EXCEEDED], ExitCode.PARITY),
        ("export", [Code.PARITY_EXCEEDED], ExitCode.PASS),
        ("Export, Parity", [Code.LOAD_FAILED, Code.PARITY_EXCEEDED], ExitCode.EXPORT),
        ("parity", [Code.INCONCLUSIVE], ExitCode.PASS),
        ("unverified", [Code.INCONCLUSIVE], ExitCode.UNVERIFIED),
        ("precision_lost", [Code.PRECISION_LOST], ExitCode.UNVERIFIED),
        ("parity_exceeded", [Code.PARITY_EXCEEDED], ExitCode.PARITY),
        ("parity_exceeded", [Code.PADDING_LEAKS], ExitCode.PASS),
        ("parity", [Code.PROVIDER_FALLBACK], ExitCode.ENVIRONMENT),
    ],
)
def test_what_fails(text: str | None, codes: list[Code], expected: ExitCode) -> None:
    assert parse_fail_on(text).exit_code(with_findings(*codes)) is expected


def test_an_artifact_that_nobody_judged_fails_where_its_code_is_listed() -> None:
    found = report(artifact("elu"), artifact("relu", judged=False))
    found.artifacts[1].runtimes = []
    found.artifacts[1].findings = [Finding.of(Code.NOT_JUDGED, "", check="parity")]
    found.settle(unjudged_is_unverified=False)
    assert parse_fail_on("unverified").exit_code(found) is ExitCode.PASS
    assert parse_fail_on("not_judged").exit_code(found) is ExitCode.UNVERIFIED


def test_nothing_judged_at_all_fails_as_unverified() -> None:
    found = report(artifact("elu", judged=False))
    found.settle(unjudged_is_unverified=False)
    assert parse_fail_on("unverified").exit_code(found) is ExitCode.UNVERIFIED


def test_names_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown `fail_on`: 'party'.*did you mean 'parity'"):
        parse_fail_on("party")
    with pytest.raises(UsageError, match="`fail_on` is empty; list some of: parity, export"):
        parse_fail_on(" , ")
    for code in set(CODES) - {Code.PASS}:
        assert parse_fail_on(str(code)).codes == {code}
