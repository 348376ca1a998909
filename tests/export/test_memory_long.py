"""Builds for very long sequences, measured: they stay below what is promised of them."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

# The scores are those of a layer of any width with eight heads; a narrow one takes less time.
SOFTMAX = "-m softmax -f onnx --d-model 128 --heads 8 --no-fixed --dynamic 1:16384 --no-latency"
ELU = "-m elu -f onnx --no-fixed --dynamic 1:131072"


def peak_of(command: list[str]) -> int:
    """The largest sum of resident bytes of a command and of what it starts."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    peak = 0
    while process.poll() is None:
        group = 0
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(place.name)) == process.pid:
                    words = (place / "statm").read_text().split()
                    group += int(words[1]) * resource.getpagesize()
            except OSError:
                continue  # it has ended
        peak = max(peak, group)
        time.sleep(0.1)
    assert process.returncode == 0
    return peak


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="not Linux")
@pytest.mark.parametrize(("flags", "most"), [(SOFTMAX, 8), (ELU, 3)])
def test_long_folders_stay_below_what_is_promised(flags: str, most: int, tmp_path: Path) -> None:
    """At 16,384 tokens of softmax, and at 131,072 of elu, whose golden pack is below 128 MiB."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "linattn_export", "build", "-q", *flags.split(), "-o", out]
    assert peak_of(list(map(str, command))) < most * 2**30
    (pack,) = out.rglob("reference.safetensors")
    assert pack.stat().st_size < 2**27
