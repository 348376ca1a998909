"""Proves the CUDA path on a machine with a GPU: PASS or FAIL for each item, exit 0 if all pass.

    python benchmarks/prove_cuda.py [FOLDER]

FOLDER is what ``linattn-export build`` wrote; without it (and with torch) a small one is built.
Needs ``linattn[cuda]``. The items:

    available    the CUDA provider starts
    artifacts    every ONNX artifact passes on ort-cuda
    placement    ONNX Runtime's own profile has every product and softmax on CUDA
    tf32         TF32 is off in the sessions that are judged, by the provider's own options
    tf32 bites   with TF32 switched on, float32 artifacts no longer pass: the gate would see it
    misspelt     a misspelt runtime is refused with exit code 2
    no device    with no device visible, --runtime ort-cuda exits with 4 and prints no number
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHECK = [sys.executable, "-m", "linattn_runtime_checks"]
ARGUMENTS = ("--runtime", "ort-cuda", "--no-latency", "--json")
Outcome = tuple[bool, str]


def check(folder: Path, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run linattn-check on ``folder``."""
    command = [*CHECK, str(folder), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | env
    )


def available() -> Outcome:
    """The provider starts."""
    from linattn_runtime_checks.runtimes.onnx_runtime import cuda_unavailable

    reason = cuda_unavailable()
    return reason is None, reason or "CUDAExecutionProvider starts"


def artifacts(report: dict[str, Any]) -> Outcome:
    """All ONNX artifacts pass."""
    judged = [artifact for artifact in report["artifacts"] if artifact["judged"]]
    passed = [artifact for artifact in judged if artifact["exit_code"] == 0]
    worst = max((artifact["multiple"] or 0.0 for artifact in judged), default=0.0)
    text = f"{len(passed)} of {len(judged)} pass, worst {worst:.2f}x the rounding"
    return bool(judged) and len(passed) == len(judged), text


def placement(report: dict[str, Any]) -> Outcome:
    """Where the nodes ran."""
    found = [r["placement"] for a in report["artifacts"] for r in a["runtimes"] if r["placement"]]
    elsewhere = sorted({op for each in found for op in each["elsewhere"]})
    on_cuda = sum(each["nodes"].get("CUDAExecutionProvider", 0) for each in found)
    casts = sum(each["casts_inserted"] for each in found)
    text = (
        f"{on_cuda} nodes of {len(found)} artifacts on CUDA, {casts} casts inserted; on the CPU: "
        f"{', '.join(elsewhere) or 'none'}"
    )
    return bool(found) and on_cuda > 0, text


def tf32(report: dict[str, Any]) -> Outcome:
    """Off, as the provider's options say."""
    found = [r["placement"] for a in report["artifacts"] for r in a["runtimes"] if r["placement"]]
    states = {each["tf32"] for each in found}
    return states == {False}, f"use_tf32 of the sessions: {sorted(map(str, states)) or 'unknown'}"


def tf32_bites(folder: Path) -> Outcome:
    """With TF32 on, at least one float32 artifact is rejected."""
    program = (
        "import sys; from linattn_runtime_checks.runtimes import onnx_runtime as o; "
        "o._provider_list = lambda p: [(o.CUDA, {'use_tf32': '1'}), o.CPU] "
        "if p == o.CUDA else [o.CPU]; "
        "from linattn_runtime_checks.cli import main; main()"
    )
    command = [sys.executable, "-c", program, str(folder), *ARGUMENTS, "--in-process"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 1, f"exit {done.returncode}: {_last(done.stderr)}"


def misspelt(folder: Path) -> Outcome:
    """A name that does not exist."""
    done = check(folder, "--runtime", "ort-cudaa")
    return done.returncode == 2 and not done.stdout, _last(done.stderr)


def no_device(folder: Path) -> Outcome:
    """No GPU visible."""
    done = check(folder, *ARGUMENTS, CUDA_VISIBLE_DEVICES="")
    return done.returncode == 4 and not done.stdout, f"exit {done.returncode}: {_last(done.stderr)}"


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "said nothing"


@contextlib.contextmanager
def folder_to_judge(given: str | None) -> Iterator[Path]:
    """The folder that was given, or a small one."""
    if given is not None:
        yield Path(given)
        return
    from linattn_export.build.pipeline import build
    from linattn_export.options.request import BuildRequest

    with tempfile.TemporaryDirectory() as temporary:
        request = BuildRequest(
            output=Path(temporary) / "out",
            formats=("onnx",),
            lengths=(128,),
            dynamic="1:512",
            d_model=64,
            options={"linformer": {"rank": 32, "max_length": 512}},
            check=False,
            quiet=True,
        )
        build(request)
        yield request.output


def main() -> int:
    """Print an outcome for each item."""
    failed = 0

    def item(name: str, prove: Callable[[], Outcome]) -> bool:
        nonlocal failed
        try:
            passed, text = prove()
        except Exception as error:  # an item that cannot be run is one that fails
            passed, text = False, f"{type(error).__name__}: {error}"
        failed += not passed
        print(f"{'PASS' if passed else 'FAIL'}  {name:<12} {text}", flush=True)
        return passed

    with folder_to_judge(sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        item("misspelt", lambda: misspelt(folder))
        item("no device", lambda: no_device(folder))
        if item("available", available):
            done = check(folder, *ARGUMENTS)
            report = json.loads(done.stdout) if done.stdout else {"artifacts": []}
            item("artifacts", lambda: artifacts(report))
            item("placement", lambda: placement(report))
            item("tf32", lambda: tf32(report))
            item("tf32 bites", lambda: tf32_bites(folder))
        else:
            for name in ("artifacts", "placement", "tf32", "tf32 bites"):
                item(name, lambda: (False, "not run: the provider does not start"))
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
