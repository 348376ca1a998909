"""How much of the processor other processes took while something was timed.

A lock that everybody takes is no proof of quiet: what counts is what the system says.
"""

import os
from pathlib import Path

_STAT = Path("/proc/stat")
_QUIET = 0.05


class Watch:
    """Starts when it is made; Linux only, elsewhere it knows nothing."""

    def __init__(self) -> None:
        self._start = _used()

    def others(self) -> float | None:
        """The share of all cores' time that went to other processes since the start."""
        end = _used()
        if self._start is None or end is None:
            return None
        total, busy, own = (after - before for before, after in zip(self._start, end, strict=True))
        return max(busy - own, 0.0) / total if total else None

    def stated(self) -> str:
        """For the page."""
        share = self.others()
        if share is None:
            return "Load of the machine while timing: not known"
        verdict = "" if share <= _QUIET else ": the machine was not quiet, so repeat this elsewhere"
        return f"Other processes took {share:.0%} of the processor while timing{verdict}"


def _used() -> tuple[float, float, float] | None:
    """Seconds of all cores, of these not idle, and of this process and its children."""
    if not _STAT.is_file():
        return None
    fields = _STAT.read_text(encoding="ascii").splitlines()[0].split()[1:9]
    ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
    idle = ticks[3] + ticks[4]  # idle and waiting for input and output
    return sum(ticks), sum(ticks) - idle, sum(os.times()[:4])
