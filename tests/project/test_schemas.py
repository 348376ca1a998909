"""The published JSON Schemas are those of the models."""

from pathlib import Path

import pytest

from doc_schemas import DOCS, SCHEMAS, text
from linattn_runtime_checks.contract.manifest import Manifest
from linattn_runtime_checks.results.report import Report


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_that_of_the_model(name: str) -> None:
    assert (DOCS / name).read_text() == text(SCHEMAS[name]), (
        "run: python tests/write_docs.py, and raise the schema version if a field of a "
        "released version changed"
    )


def test_what_a_build_writes_follows_the_schemas(small_folder: Path) -> None:
    Manifest.model_validate_json((small_folder / "linattn_manifest.json").read_text())
    Report.model_validate_json((small_folder / "report.json").read_text())
