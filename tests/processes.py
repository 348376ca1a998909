"""Linux: the children of ours that a process has."""

import os
from pathlib import Path


def children_of(parent: int) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if is_ours(pid) and _parent(pid) == parent]


def is_ours(pid: int) -> bool:
    try:
        return b"judging.child_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _parent(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(status.rsplit(")", 1)[1].split()[1])
