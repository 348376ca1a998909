"""Every size that an artifact declares was run, to both ends of its range.

Known when every runtime has had its turn: what any of them verified counts.
"""

from linattn_runtime_checks.checks.base import Check, When
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.golden_pack import MAX_TOKENS_PER_CASE
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.results.report import ArtifactResult

_VERIFIED = (Code.PASS, Code.RUNTIME_INEXACT)
"""Where the file was shown to be right, if not every kernel that ran it."""

VERIFIED_RANGE = Check(
    name="range",
    title="every size that is declared was run, to both ends of its range",
    codes=(Code.AXIS_UNVERIFIED_RANGE,),
    when=When.ARTIFACT,
)


def verify_ranges(result: ArtifactResult, artifact: Artifact) -> None:
    """Set the verified ranges; a declared range that was not run to its ends is a finding."""
    if result.exit_code is not ExitCode.PASS:
        return
    cases = [c for runtime in result.runtimes for c in runtime.cases if c.code in _VERIFIED]
    result.lengths = sorted({case.sequence for case in cases})
    result.verified_sequence = (result.lengths[0], result.lengths[-1])
    batches = [case.batch for case in cases]
    result.verified_batch = (min(batches), max(batches))
    # A batch is verified up to its declared end or, for long sequences, as far as the budget of
    # tokens per case goes; the range that was reached is stated either way.
    reach = min(artifact.axis("batch").declared[1], MAX_TOKENS_PER_CASE // result.lengths[0])
    short = {
        "sequence": tuple(artifact.axis("sequence").declared) != result.verified_sequence,
        "batch": result.verified_batch[0] > artifact.axis("batch").declared[0]
        or result.verified_batch[1] < reach,
    }
    for name, verified in (
        ("sequence", result.verified_sequence),
        ("batch", result.verified_batch),
    ):
        if short[name]:
            declared = artifact.axis(name).declared
            message = (
                f"{artifact.id}: axis {name} declares {declared[0]}:{declared[1]} but was "
                f"verified on {verified[0]}:{verified[1]} only"
            )
            result.findings.append(VERIFIED_RANGE.finding(Code.AXIS_UNVERIFIED_RANGE, message))
