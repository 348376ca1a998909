"""``--fail-on``: which verdicts and codes make the command fail."""

from dataclasses import dataclass

from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode, UsageError, gravest, unknown
from linattn_runtime_checks.results.report import Finding, Report

_VERDICTS = {
    code.name.lower(): code
    for code in (ExitCode.PARITY, ExitCode.EXPORT, ExitCode.UNVERIFIED, ExitCode.REGRESSION)
}
_ALWAYS = {ExitCode.ENVIRONMENT, ExitCode.INTERNAL}
"""What was asked for did not run: no list can make that a success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailOn:
    """The verdicts and codes that fail; None means the default, every verdict but PASS."""

    verdicts: frozenset[ExitCode] | None = None
    codes: frozenset[Code] = frozenset()

    def exit_code(self, report: Report) -> ExitCode:
        """What to exit with.

        A code that is listed fails also where it is only a note: it exits with UNVERIFIED then.
        """
        if self.verdicts is None:
            return report.exit_code
        found = [self._of(finding) for finding in report.all_findings()]
        if report.exit_code in self.verdicts | _ALWAYS:
            found.append(report.exit_code)
        return gravest(found)

    def _of(self, finding: Finding) -> ExitCode:
        if finding.code in self.codes:
            passes = finding.exit_code is ExitCode.PASS
            return ExitCode.UNVERIFIED if passes else finding.exit_code
        assert self.verdicts is not None
        kept = finding.exit_code in self.verdicts | _ALWAYS
        # What no runtime here can judge fails only where it is asked for by its code: see Report.
        return finding.exit_code if kept and finding.code is not Code.NOT_JUDGED else ExitCode.PASS


def parse_fail_on(text: str | None) -> FailOn:
    """The policy of a comma-separated list.

    Raises:
        UsageError: a name is neither a verdict nor a code, or the list is empty.
    """
    if text is None:
        return FailOn()
    names = [part.strip().lower() for part in text.split(",") if part.strip()]
    known = [*_VERDICTS, *(str(code) for code in CODES if code is not Code.PASS)]
    if not names:
        raise UsageError(f"`fail_on` is empty; list some of: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UsageError(unknown("`fail_on`", name, known))
    return FailOn(
        verdicts=frozenset(_VERDICTS[name] for name in names if name in _VERDICTS),
        codes=frozenset(Code(name) for name in names if name not in _VERDICTS),
    )
