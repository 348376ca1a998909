"""Writes the reports of a folder."""

from pathlib import Path

from linattn_runtime_checks.contract.errors import EnvironmentProblem
from linattn_runtime_checks.contract.manifest import Manifest
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.report.markdown import render
from linattn_runtime_checks.results.report import Report


def write_reports(folder: Path, report: Report, manifest: Manifest) -> str | None:
    """Write ``report.json``, ``report.md`` and ``report.html`` into ``folder``.

    Returns:
        Why there is no ``report.html``, where the packages that it needs are missing.
    """
    (folder / "report.json").write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(render(report), encoding="utf-8")
    try:
        page = render_html(report, manifest)
    except EnvironmentProblem as problem:
        return str(problem)
    (folder / "report.html").write_text(page, encoding="utf-8")
    return None
