"""``docs/codes.md``, made from the tables of codes and checks."""

from linattn_runtime_checks.checks import CHECKS
from linattn_runtime_checks.contract.codes import CODES
from roots import ROOT

DOCUMENT = ROOT / "docs" / "codes.md"
OWNERS = {code: check.name for check in CHECKS.values() for code in check.codes}
INTRODUCTION = """\
# Codes

What `linattn-check` finds has a stable code: in `report.json`, in the JUnit file, in pytest and on
the terminal. Codes are only ever added. The exit code of a run is the gravest of all findings.

Written by `python tests/write_docs.py`.

| code | check | exit code | meaning | fix |
| --- | --- | --- | --- | --- |
"""
CHECKS_INTRODUCTION = """
## Checks

Every finding names the check that made it. They have their turns in this order.

| check | what holds where it passes | planted faults that it must reject |
| --- | --- | --- |
"""


def text() -> str:
    """``docs/codes.md``."""
    rows = [
        f"| `{code}` | {OWNERS.get(code, '-')} "
        f"| {int(info.exit_code)} {info.exit_code.name} | {info.meaning} | {info.fix} |"
        for code, info in CODES.items()
    ]
    checks = [
        f"| {check.name} | {check.title} | {', '.join(check.faults) or '-'} |"
        for check in CHECKS.values()
    ]
    codes = INTRODUCTION + "\n".join(rows) + "\n"
    return codes + CHECKS_INTRODUCTION + "\n".join(checks) + "\n"
