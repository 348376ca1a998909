"""The peak of resident memory during a call, as Linux counts it for this process.

Linux counts pages in batches for each thread, so that a number may be off by some hundred kB.
Memory that the process holds unused when the first call starts can hide as much of its peak.
"""

import ctypes
import gc
from collections.abc import Callable, Sequence
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_SLACK = 2**20  # bytes; how far apart peak and present may be just after a reset


def peaks(run: Callable[[int], object], lengths: Sequence[int]) -> dict[int, int] | None:
    """The peak of resident memory beyond what the process held before the first call.

    The baseline is taken once, so what a call leaves behind, such as the arena of a session,
    counts for the later ones too; they are longer and need it anyway. The first call also pays
    for whatever it loads.

    Args:
        run: called once for each length, shortest first; what it returns is dropped at once.
        lengths: in tokens.

    Returns:
        Length to bytes, which may be below zero by the error of the count. None where this cannot
        be measured: not Linux, a C library without ``malloc_trim`` (freed memory then hides what
        a call needs), or a kernel or sandbox that does not let the peak be reset.
    """
    trim = _malloc_trim()
    # Once: what a run leaves is freed when its last reference goes, and a collection with torch
    # imported takes longer than the run.
    gc.collect()
    if trim is None or not _STATUS.is_file() or not _reset(trim):
        return None
    baseline = _status("VmRSS")
    found = {}
    for length in sorted(set(lengths)):
        if not _reset(trim):
            return None
        run(length)
        found[length] = _status("VmHWM") - baseline
    return found


def _malloc_trim() -> Callable[[int], object] | None:
    """The function of glibc that gives freed memory back to the system."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return trim


def _reset(trim: Callable[[int], object]) -> bool:
    """Give freed memory back and set the peak to the present; False where it stays."""
    trim(0)
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return _status("VmHWM") - _status("VmRSS") < _SLACK


def _status(key: str) -> int:
    """A line of /proc/self/status in bytes."""
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    line = next(line for line in lines if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024
