"""What is to blame for wrong numbers, and where it can be seen again, as lines of text."""

from linattn_runtime_checks.results.report import Report


def blame_lines(report: Report) -> list[str]:
    """One line for each result with wrong numbers, and one for its repro."""
    lines = []
    for artifact in report.artifacts:
        for result in artifact.runtimes:
            if result.blame is not None:
                lines.append(f"blame: {artifact.id} on {result.runtime}: {result.blame}")
            if result.repro is not None:
                lines.append(f"repro: python repro/{result.repro}/repro.py")
    return lines
