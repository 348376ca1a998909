"""The README's own lines are run, and its tables are those of the registries.

``python tests/test_readme.py --write`` writes the tables anew.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doc_markdown import table
from linattn_export.listing import tables

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BEGIN = "<!-- tables: written by tests/test_readme.py --write -->"
END = "<!-- end of tables -->"


def block(marker: str) -> str:
    """The code below ``<!-- marker -->``."""
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None, marker
    return found.group(1).strip()


def rendered() -> str:
    """The tables of the registries as Markdown."""
    parts = []
    for name, (headings, rows) in tables().items():
        parts.append(f"### {name.capitalize()}\n\n{table(headings, rows)}")
    return "\n\n".join(parts)


def written() -> str:
    text = README.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()


def test_the_tables_are_those_of_the_registries() -> None:
    assert written() == rendered(), "run: python tests/test_readme.py --write"


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
    check = block("main job").split(" && ")[3].split()
    assert check == [".venv/bin/linattn-check", "out"]
    program = [sys.executable, "-m", "linattn_runtime_checks", *check[1:], "--no-latency"]
    subprocess.run(program, cwd=tmp_path, check=True)
    example = block("load")
    assert len(example.splitlines()) <= 10
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True)
    assert "(3, 777, 256) 1:4096" in capfd.readouterr().out


def test_the_module_example_runs() -> None:
    found = re.search(r"## Use the modules\n\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, object] = {}
    exec(found.group(1), names)
    assert tuple(names["output"].shape) == (2, 100, 256)  # type: ignore[attr-defined]


def test_the_recurrence_example_runs() -> None:
    section = README.read_text().split("## Use the modules")[1]
    examples = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (example,) = (text for text in examples if "linattn.recurrent" in text)
    names: dict[str, object] = {}
    exec(example, names)
    assert tuple(names["output"].shape) == (1, 1, 8, 64)  # type: ignore[attr-defined]
    assert tuple(names["state"].shape) == (1, 8, 64, 64)  # type: ignore[attr-defined]


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


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], "usage: python tests/test_readme.py --write"
    text = README.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    README.write_text(f"{before}\n{rendered()}\n{after}", encoding="utf-8")
