"""The page as a whole."""

import base64
import functools
import hashlib
from typing import TYPE_CHECKING

from linattn_runtime_checks.contract.manifest import Manifest
from linattn_runtime_checks.contract.verdict import K
from linattn_runtime_checks.report.checks import check_table
from linattn_runtime_checks.report.families import family_table
from linattn_runtime_checks.report.html.grid import Grid, grid
from linattn_runtime_checks.report.html.latency_rows import full_latency_table
from linattn_runtime_checks.report.html.loading import Snippet, snippets
from linattn_runtime_checks.report.html.needs import require_packages
from linattn_runtime_checks.report.html.sections import model_sections
from linattn_runtime_checks.report.html.verdict import (
    finding_groups,
    headline,
    note_groups,
    unused_groups,
)
from linattn_runtime_checks.report.latency_tables import (
    against_table,
    crossover_table,
    session_table,
)
from linattn_runtime_checks.report.scores import task_table
from linattn_runtime_checks.report.table import Table
from linattn_runtime_checks.report.tables import artifact_table, cost_table
from linattn_runtime_checks.results.report import Report

if TYPE_CHECKING:
    from jinja2 import Environment

_SCRIPT = "table.js"


def render_html(report: Report, manifest: Manifest | None) -> str:
    """The whole report as one HTML file that refers to nothing outside of itself.

    Args:
        report: what a check found.
        manifest: of the folder that was checked; without it, the page has no commands that load
            the artifacts.

    Raises:
        EnvironmentProblem: a package of the extra ``report`` is missing.
    """
    require_packages()
    environment = _environment()
    loader = environment.loader
    assert loader is not None
    script, _, _ = loader.get_source(environment, _SCRIPT)
    return environment.get_template("report.html.j2").render(
        script_hash=_hash(script),
        headline=headline(report),
        findings=finding_groups(report),
        notes=note_groups(report),
        unused=unused_groups(report),
        models=model_sections(report),
        limit=f"{K:g}",
        overviews=_grids(
            task_table(report),
            against_table(report),
            family_table(report),
            check_table(report),
            crossover_table(report),
        ),
        artifacts=grid("artifacts", artifact_table(report)),
        latency=next(iter(_grids(full_latency_table(report))), None),
        costs=_grids(cost_table(report), _sessions(report)),
        environment=[(name, str(value)) for name, value in report.environment.items()],
        loading=_loading(manifest),
        schema_version=report.schema_version,
    )


@functools.cache  # it keeps the templates that it has compiled
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,  # names come from folders that others may have written
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _hash(script: str) -> str:
    """What the page's content security policy knows its one script by; no other may run."""
    digest = hashlib.sha256(f"\n{script}".encode()).digest()
    return base64.b64encode(digest).decode()


def _grids(*tables: Table | None) -> list[Grid]:
    return [
        grid(table.title.lower().replace(" ", "-"), table)
        for table in tables
        if table is not None and table.rows
    ]


def _sessions(report: Report) -> Table | None:
    return session_table(report) if report.latency is not None else None


def _loading(manifest: Manifest | None) -> list[tuple[str, list[Snippet]]]:
    artifacts = manifest.artifacts if manifest is not None else []
    return [(artifact.id, snippets(artifact)) for artifact in artifacts]
