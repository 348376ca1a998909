"""The example workflow is valid, and the command in it runs."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from ruamel.yaml import YAML

from conftest import CallCli
from roots import ROOT

WORKFLOW = ROOT / "examples" / "github-workflow.yml"


def checked(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--verbose"]
    command += ["--builtin-schema", "vendor.github-workflows", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def steps() -> list[dict[str, Any]]:
    (job,) = YAML(typ="safe").load(WORKFLOW)["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def test_the_workflow_follows_the_schema_of_github() -> None:
    done = checked(WORKFLOW)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("runs-on:", "run-on:", id="key-of-a-job"),
        pytest.param("uses: actions/checkout", "use: actions/checkout", id="key-of-a-step"),
        pytest.param("contents: read", "contents: none-at-all", id="permission"),
    ],
)
def test_a_broken_workflow_would_be_seen(right: str, wrong: str, tmp_path: Path) -> None:
    text = WORKFLOW.read_text()
    assert text.count(right) == 1
    (tmp_path / "broken.yml").write_text(text.replace(right, wrong))
    done = checked(tmp_path / "broken.yml")
    assert done.returncode == 1
    assert wrong.split(":")[0] in done.stdout


def test_the_workflow_may_only_read_and_pins_its_actions() -> None:
    workflow = YAML(typ="safe").load(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    actions = [step["uses"] for step in steps() if "uses" in step]
    assert [action.split("@")[0] for action in actions] == [
        "actions/checkout",
        "actions/setup-python",
        "actions/upload-artifact",
    ]
    assert all(action.split("@")[1].removeprefix("v").isdigit() for action in actions)
    assert steps()[-1]["if"] == "always()", "a red run is the one whose file is wanted"


def test_the_command_of_the_workflow_runs(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [s["run"] for s in steps() if s.get("run", "").startswith("linattn-check")]
    monkeypatch.chdir(folder_copy.parent)
    folder, *options = shlex.split(line.replace("$GITHUB_STEP_SUMMARY", "step-summary.md"))[1:]
    assert folder == folder_copy.name, "the fixture's folder is called as in the workflow"
    done = call_cli("linattn_runtime_checks", folder, *options)
    assert done.returncode == 0, done.stderr
    written = ET.parse(steps()[-1]["with"]["path"]).getroot()
    assert int(written.attrib["tests"]) > 100
    assert (written.attrib["failures"], written.attrib["errors"]) == ("0", "0")
    assert Path("step-summary.md").read_text().startswith("## linattn: PASS\n")
