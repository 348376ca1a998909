"""What a run depends on: versions, processor, cores. Nothing that names the machine."""

import os
import platform
from importlib import metadata

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


def version(package: str) -> str | None:
    """The installed version of a distribution, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def describe() -> dict[str, str | int | None]:
    """Versions, operating system, processor and the cores this process may use."""
    found: dict[str, str | int | None] = {"python": platform.python_version()}
    found |= {package: version(package) for package in _PACKAGES if version(package) is not None}
    found["system"] = f"{platform.system()} {platform.machine()}"
    found["processor"] = _processor()
    found["cores"] = cores()
    return found


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
