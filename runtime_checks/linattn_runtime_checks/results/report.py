"""``report.json``: what a check found, as pydantic models."""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, Field, PlainSerializer, computed_field

from linattn_runtime_checks.contract.codes import CODES, Code
from linattn_runtime_checks.contract.errors import ExitCode, gravest
from linattn_runtime_checks.cost.certificate import CostCertificate
from linattn_runtime_checks.cost.exponent import Exponent
from linattn_runtime_checks.results.latency import LatencyTable
from linattn_runtime_checks.runtimes.placement import Placement

SCHEMA_VERSION = "1.6"


def _finite_or_name(number: float) -> float | Literal["inf", "-inf", "nan"]:
    """JSON has no infinity and no NaN."""
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "nan"
    return "inf" if number > 0 else "-inf"


Number = Annotated[float, PlainSerializer(_finite_or_name, when_used="json")]


class Finding(BaseModel):
    """Something wrong: a stable code, and a message that names value, expectation and fix.

    ``check`` names the check that found it; it is empty in reports before schema 1.6.
    """

    code: Code
    message: str
    exit_code: ExitCode
    check: str = ""

    @classmethod
    def of(cls, code: Code, message: str, *, check: str) -> "Finding":
        """With the exit code that belongs to ``code``."""
        return cls(code=code, message=message, exit_code=CODES[code].exit_code, check=check)


class CheckResult(BaseModel):
    """What became of one check of an artifact: the gravest problem that it found, or ``pass``."""

    name: str
    code: Code
    message: str = ""


class CaseResult(BaseModel):
    """One input through one runtime mode."""

    mode: str
    case: str
    family: str
    batch: int
    sequence: int
    code: Code
    message: str = ""
    rounding: Number | None = None
    """What rounding costs PyTorch on this input, as a share of the output."""
    nonfinite: bool = False
    """NaN or infinity came out though none went in."""
    multiple: Number | None = None
    row_error: Number | None = None
    whole_error: Number | None = None
    max_abs: Number | None = None
    worst_index: tuple[int, ...] | None = None


class TaskResult(BaseModel):
    """The score on held-out data, beside that of the float64 module.

    ``allowed`` is by how much rounding may make it worse; ``samples`` are rows of data.
    """

    metric: str
    score: Number
    reference_score: float
    allowed: float
    samples: int
    description: str = ""


class Located(BaseModel):
    """The node or optimiser that is to blame, and all that is known of it as a sentence."""

    name: str
    message: str


class RuntimeResult(BaseModel):
    """One runtime on one artifact."""

    runtime: str
    cases: list[CaseResult] = []
    checks: list[CheckResult] = []
    findings: list[Finding] = []
    task: TaskResult | None = None
    departure: Located | None = None
    """The first node whose output departs, where ONNX numbers are wrong."""
    optimizers: Located | None = None
    """The graph optimiser that makes them wrong."""
    blame: str | None = None
    """The first rung that departs, and what was right before it."""
    repro: str | None = None
    """Folder with a program that shows the fault."""
    placement: Placement | None = None
    cost: CostCertificate | None = None
    peak_bytes: dict[int, int] = {}
    """Peak memory beyond the loaded session, by length, at the smallest batch."""
    memory_exponent: Exponent | None = None
    session_ms: float | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> ExitCode:
        """The gravest thing found."""
        return gravest(finding.exit_code for finding in self.findings)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def multiple(self) -> Number | None:
        """The largest multiple of the yardstick."""
        return max((c.multiple for c in self.cases if c.multiple is not None), default=None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def row_error(self) -> Number | None:
        """The largest relative error of a row."""
        return max((c.row_error for c in self.cases if c.row_error is not None), default=None)


class ArtifactResult(BaseModel):
    """One artifact: what it is, and what every runtime said."""

    id: str
    model: str
    method: str
    format: str
    variant: str
    entry: str = "forward"
    form: str = "portable"
    bytes: int
    parameters: int
    nodes: int | None
    declared_sequence: tuple[int, int]
    declared_batch: tuple[int, int] | None = None
    verified_sequence: tuple[int, int] | None = None
    verified_batch: tuple[int, int] | None = None
    padding: str = "any"
    """Where padded tokens may lie; nothing is promised of padding elsewhere."""
    lengths: list[int] = []
    findings: list[Finding] = []
    runtimes: list[RuntimeResult] = []

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> ExitCode:
        """The gravest thing found; UNVERIFIED if no runtime judged it."""
        codes = [finding.exit_code for finding in self.findings]
        codes += [result.exit_code for result in self.runtimes]
        if not any(result.cases for result in self.runtimes):
            codes.append(ExitCode.UNVERIFIED)
        return gravest(codes)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def judged(self) -> bool:
        """Whether any runtime compared it."""
        return any(result.cases for result in self.runtimes)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def multiple(self) -> Number | None:
        """The largest multiple of the yardstick over the runtimes."""
        return max((r.multiple for r in self.runtimes if r.multiple is not None), default=None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def row_error(self) -> Number | None:
        """The largest relative error of a row over the runtimes."""
        return max((r.row_error for r in self.runtimes if r.row_error is not None), default=None)


class Change(BaseModel):
    """One size in bytes or latency in milliseconds, against the baseline.

    ``ratio`` is now / before, for latency with the speed of the machine divided out; ``low`` is the
    lower end of its interval.
    """

    what: Literal["size", "latency"]
    subject: str
    before: float
    now: float
    ratio: float
    low: float
    worse: bool

    def text(self) -> str:
        """As a sentence."""
        if self.what == "size":
            return f"{self.subject}: {self.before:.0f} bytes before, {self.now:.0f} now"
        return (
            f"{self.subject}: {self.before:.2f} ms before, {self.now:.2f} now, {self.ratio:.2f} "
            f"times as long at equal speed of the machine (at least {self.low:.2f})"
        )


class Against(BaseModel):
    """What changed since the baseline."""

    changes: list[Change] = []
    uncompared: int = 0
    """Latencies of the baseline's artifacts that were not measured in this run."""
    findings: list[Finding] = []


class Report(BaseModel):
    """Everything a check found."""

    schema_version: str = Field(default=SCHEMA_VERSION, pattern=r"^\d+\.\d+$")
    environment: dict[str, str | int | None]
    runtimes: list[str]
    left_out: dict[str, str]
    not_made: dict[str, str] = {}
    """Place of each artifact that the build left out because it cannot be made, to the reason."""
    findings: list[Finding] = []
    artifacts: list[ArtifactResult] = []
    latency: LatencyTable | None = None
    against: Against = Field(default_factory=Against)
    """The comparison with ``--baseline``; empty without one."""
    verdict: str = ExitCode.UNVERIFIED.name
    exit_code: ExitCode = ExitCode.UNVERIFIED
    seconds: float = 0.0

    def all_findings(self) -> list[Finding]:
        """Of the folder, of the artifacts, of the runtimes on them and of the baseline."""
        found = list(self.findings)
        for artifact in self.artifacts:
            found += artifact.findings
            for runtime in artifact.runtimes:
                found += runtime.findings
        return found + self.against.findings

    def settle(self, *, unjudged_is_unverified: bool) -> None:
        """Set verdict and exit code from what was found.

        Args:
            unjudged_is_unverified: an artifact that no runtime compared makes the whole
                UNVERIFIED; otherwise only a folder in which nothing at all was compared does.
        """
        codes = [finding.exit_code for finding in (*self.findings, *self.against.findings)]
        for artifact in self.artifacts:
            code = artifact.exit_code
            if code is ExitCode.UNVERIFIED and not artifact.judged and not unjudged_is_unverified:
                continue
            codes.append(code)
        if not any(artifact.judged for artifact in self.artifacts):
            codes.append(ExitCode.UNVERIFIED)
        self.exit_code = gravest(codes)
        self.verdict = self.exit_code.name
