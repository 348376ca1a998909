"""``report.json``: what a check found, as pydantic models."""

from pydantic import BaseModel, Field, computed_field

from linattn_runtime_checks.errors import ExitCode, gravest

SCHEMA_VERSION = "1.0"


class Finding(BaseModel):
    """Something wrong: a stable code, and a message that names value, expectation and fix."""

    code: str
    message: str
    exit_code: ExitCode


class CaseResult(BaseModel):
    """One input through one runtime mode."""

    mode: str
    case: str
    family: str
    batch: int
    sequence: int
    code: str
    message: str = ""
    multiple: float | None = None
    row_error: float | None = None
    whole_error: float | None = None
    max_abs: float | None = None
    worst_index: tuple[int, ...] | None = None


class TaskResult(BaseModel):
    """The score on held-out data, beside that of the float64 module."""

    metric: str
    score: float
    reference_score: float
    samples: int


class RuntimeResult(BaseModel):
    """One runtime on one artifact."""

    runtime: str
    cases: list[CaseResult] = []
    findings: list[Finding] = []
    task: TaskResult | None = None
    session_ms: float | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> ExitCode:
        """The gravest thing found."""
        return gravest(finding.exit_code for finding in self.findings)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def multiple(self) -> float | None:
        """The largest multiple of the yardstick."""
        return max((c.multiple for c in self.cases if c.multiple is not None), default=None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def row_error(self) -> float | None:
        """The largest relative error of a row."""
        return max((c.row_error for c in self.cases if c.row_error is not None), default=None)


class ArtifactResult(BaseModel):
    """One artifact: what it is, and what every runtime said."""

    id: str
    model: str
    method: str
    format: str
    variant: str
    bytes: int
    parameters: int
    nodes: int | None
    declared_sequence: tuple[int, int]
    verified_sequence: tuple[int, int] | None = None
    verified_batch: tuple[int, int] | None = None
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
    def multiple(self) -> float | None:
        """The largest multiple of the yardstick over the runtimes."""
        return max((r.multiple for r in self.runtimes if r.multiple is not None), default=None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def row_error(self) -> float | None:
        """The largest relative error of a row over the runtimes."""
        return max((r.row_error for r in self.runtimes if r.row_error is not None), default=None)


class LatencyResult(BaseModel):
    """Time of one artifact, or of eager, at one length; milliseconds."""

    model: str
    method: str
    format: str
    variant: str
    runtime: str
    batch: int
    sequence: int
    runs: int
    first_ms: float
    min_ms: float
    p50_ms: float
    p90_ms: float


class LatencyTable(BaseModel):
    """All latencies of one interleaved run."""

    threads: int
    load_before: float | None
    load_after: float | None
    results: list[LatencyResult] = []
    crossovers: dict[str, int | None] = {}


class Report(BaseModel):
    """Everything a check found."""

    schema_version: str = Field(default=SCHEMA_VERSION, pattern=r"^\d+\.\d+$")
    environment: dict[str, str | int | None]
    runtimes: list[str]
    left_out: dict[str, str]
    findings: list[Finding] = []
    artifacts: list[ArtifactResult] = []
    latency: LatencyTable | None = None
    verdict: str = ExitCode.UNVERIFIED.name
    exit_code: ExitCode = ExitCode.UNVERIFIED
    seconds: float = 0.0

    def settle(self, *, unjudged_is_unverified: bool) -> None:
        """Set verdict and exit code from what was found.

        Args:
            unjudged_is_unverified: an artifact that no runtime compared makes the whole
                UNVERIFIED; otherwise only a folder in which nothing at all was compared does.
        """
        codes = [finding.exit_code for finding in self.findings]
        for artifact in self.artifacts:
            code = artifact.exit_code
            if code is ExitCode.UNVERIFIED and not artifact.judged and not unjudged_is_unverified:
                continue
            codes.append(code)
        if not any(artifact.judged for artifact in self.artifacts):
            codes.append(ExitCode.UNVERIFIED)
        self.exit_code = gravest(codes)
        self.verdict = self.exit_code.name
