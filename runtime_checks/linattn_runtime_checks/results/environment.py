"""What a run depends on: versions, processor, cores. Nothing that names the machine."""

import functools
import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = (
    "linattn",
    "torch",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "onnxruntime-gpu",
    "numpy",
    "safetensors",
)


@functools.cache  # it does not change while a process runs, and a report asks for many
def version(package: str) -> str | None:
    """The installed version of a distribution, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def calm_threads() -> None:
    """Let idle OpenMP threads of torch sleep instead of spin; call before torch is imported.

    With one other process on two cores, a spinning pool was seen to take 55 ms for a layer that
    takes 8 ms with a sleeping one. A user's own setting is kept.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def describe() -> dict[str, str | int | None]:
    """Versions, operating system, processor and the cores this process may use."""
    found: dict[str, str | int | None] = {"python": platform.python_version()}
    found |= {package: version(package) for package in _PACKAGES if version(package) is not None}
    found["system"] = f"{platform.system()} {platform.machine()}"
    found["processor"] = _processor()
    found["cores"] = cores()
    found["omp_wait_policy"] = os.environ.get("OMP_WAIT_POLICY")
    return found


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes that this process may still take, of the machine or its cgroup; None if unknown."""
    found = [_number("/proc/meminfo", "MemAvailable:", 1024)]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        most, taken = _number(limit), _number(used)
        if most is not None and taken is not None:
            # Cached files count as used, and are given up when memory is asked for.
            cached = _number(str(Path(limit).with_name("memory.stat")), "inactive_file") or 0
            found.append(max(most - taken + cached, 0))
    known = [size for size in found if size is not None]
    return min(known, default=None)


def _number(path: str, label: str = "", unit: int = 1) -> int | None:
    """The number in a file, or behind ``label`` in one of its lines."""
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            words = line.removeprefix(label).split()
            if line.startswith(label) and words and words[0].isdigit():
                return int(words[0]) * unit
    except OSError:
        pass  # not Linux, or no such cgroup
    return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
