"""The README's own lines are run; it is short, and its links lead somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from readme_blocks import README, block
from roots import ROOT


def test_it_can_be_read_in_one_go() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_each_command_is_one_line_that_does_its_own_set_up() -> None:
    for marker in ("main job", "tests"):
        assert "\n" not in block(marker)
        assert block(marker).startswith("python3 -m venv .venv && .venv/bin/pip install")


def test_the_tests_command_runs_this_suite() -> None:
    assert block("tests").endswith(".venv/bin/python -m pytest -n 2 --dist worksteal")


def test_the_loading_example_runs_on_what_the_main_job_writes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = block("main job").split(" && ")[2]
    assert job == ".venv/bin/linattn-export build -o out"
    program = [sys.executable, "-m", "linattn_export", *job.split()[1:]]
    only = ["-m", "elu", "-f", "onnx", "--no-fixed", "--no-latency"]  # the slow test runs it all
    subprocess.run([*program, *only], cwd=tmp_path, check=True)
    assert block("main job").split(" && ")[3] == ".venv/bin/linattn-check out"
    example = block("load")
    assert len(example.splitlines()) <= 10
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True)
    assert "(3, 777, 256) 1:4096" in capfd.readouterr().out


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        if "://" not in target:
            assert (ROOT / target).exists(), target


@pytest.mark.slow
def test_the_main_job_from_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run(["bash", "-ec", block("main job")], cwd=clone, check=True)
    assert (clone / "out" / "report.md").read_text().startswith("# linattn report: PASS")
    shutil.rmtree(clone)
