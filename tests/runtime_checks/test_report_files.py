"""What a build writes of its report, with and without the packages of the page."""

import sys
from pathlib import Path

import pytest

from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.errors import ExitCode


def test_without_the_packages_of_the_page_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    request = BuildRequest(
        output=tmp_path / "out",
        methods=("elu",),
        formats=("onnx",),
        lengths=(),
        dynamic="1:40",
        d_model=16,
        heads=2,
        latency=False,
        quiet=True,
    )
    report = build(request)
    assert report.exit_code is ExitCode.PASS
    written = {path.name for path in request.output.glob("report.*")}
    assert written == {"report.json", "report.md"}
    assert "pip install 'linattn[report]'" in report.left_out["report.html"]
