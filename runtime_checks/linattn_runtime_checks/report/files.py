"""Writes the reports of a folder."""

from pathlib import Path

from linattn_runtime_checks.report.markdown import render
from linattn_runtime_checks.report.model import Report


def write_reports(folder: Path, report: Report) -> None:
    """Write ``report.json`` and ``report.md`` into ``folder``."""
    (folder / "report.json").write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(render(report), encoding="utf-8")
