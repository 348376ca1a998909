"""What ``linattn-check`` is asked for: one dataclass whose fields are its flags."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.contract.flags import flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line of ``linattn-check``."""

    folder: Path = field(metadata=flag(metavar="DIR", help="A folder that a build wrote."))
    runtimes: tuple[str, ...] = field(
        default=(),
        metadata=flag("--runtime", metavar="NAME", help="Judge on this runtime only (repeat)."),
    )
    latency: bool = field(default=True, metadata=flag("--no-latency", help="Measure no latency."))
    live: bool = field(
        default=False,
        metadata=flag(
            "--live",
            help="Judge on fresh inputs and lengths too; needs torch.",
            without="self_test",
        ),
    )
    seed: int | None = field(
        default=None,
        metadata=flag("--seed", metavar="N", help="Of the inputs and lengths of --live."),
    )
    self_test: bool = field(
        default=False,
        metadata=flag(
            "--self-test",
            help="Plant faults in copies; each must be rejected.",
            clash="`self_test` judges the gate, not the folder; leave out {}",
        ),
    )
    fail_on: str | None = field(
        default=None,
        metadata=flag(
            "--fail-on",
            metavar="LIST",
            help="What fails the check: verdicts and codes, comma-separated, such as "
            "parity,export,precision_lost. Default: every verdict but PASS.",
            without="self_test",
        ),
    )
    junit: Path | None = field(
        default=None,
        metadata=flag(
            "--junit",
            metavar="FILE",
            help="Write the checks as JUnit XML to FILE.",
            without="self_test",
        ),
    )
    summary: Path | None = field(
        default=None,
        metadata=flag(
            "--summary",
            metavar="FILE",
            help="Write a short Markdown report to FILE.",
            without="self_test",
        ),
    )
    html: Path | None = field(
        default=None,
        metadata=flag(
            "--html",
            metavar="FILE",
            help="Write the report as one page to FILE.",
            without="self_test",
        ),
    )
    baseline: Path | None = field(
        default=None,
        metadata=flag(
            "--baseline",
            metavar="REPORT",
            help="Fail where size or latency got worse than in it.",
            without="self_test",
        ),
    )
    repro: Path | None = field(
        default=None,
        metadata=flag(
            "--repro",
            metavar="FOLDER",
            help="Write a program that shows each failure to FOLDER.",
            without="self_test",
        ),
    )
    json: bool = field(default=False, metadata=flag("--json", help="Print the report as JSON."))
    time_limit: float = field(
        default=300.0,
        metadata=flag("--time-limit", metavar="SECONDS", help="For one step of one artifact."),
    )
    memory_limit: float | None = field(
        default=None,
        metadata=flag(
            "--memory-limit", metavar="GIB", help="For each child process. Default: none."
        ),
    )
    isolate: bool = field(
        default=True,
        metadata=flag("--in-process", help="No child processes, for a debugger."),
    )
    quiet: bool = field(
        default=False, metadata=flag("--quiet", "-q", help="Print the verdict only.")
    )
    verbose: bool = field(
        default=False,
        metadata=flag("--verbose", "-v", help="Print fixed variants' latencies too."),
    )

    def __post_init__(self) -> None:
        for name in ("time_limit", "memory_limit"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"`{name}` must be above 0, got {value:g}")
