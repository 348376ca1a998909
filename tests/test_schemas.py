"""The published JSON Schemas are those of the models; ``--write`` writes them anew."""

import json
import sys
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from linattn_export.own.spec import InputsSpec
from linattn_runtime_checks.contract.manifest import Manifest
from linattn_runtime_checks.results.report import Report

DOCS = Path(__file__).parents[1] / "docs"
SCHEMAS: dict[str, type[BaseModel]] = {
    "report-1.6.schema.json": Report,
    "manifest-1.6.schema.json": Manifest,
    "inputs-1.0.schema.json": InputsSpec,
}
_MODES: dict[type[BaseModel], Literal["validation", "serialization"]] = {
    InputsSpec: "validation"  # people write it
}


def text(model: type[BaseModel]) -> str:
    mode = _MODES.get(model, "serialization")
    return json.dumps(model.model_json_schema(mode=mode), indent=2) + "\n"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_that_of_the_model(name: str) -> None:
    assert (DOCS / name).read_text() == text(SCHEMAS[name]), (
        "run: python tests/test_schemas.py --write, and raise the schema version if a field of a "
        "released version changed"
    )


def test_what_a_build_writes_follows_the_schemas(small_folder: Path) -> None:
    Manifest.model_validate_json((small_folder / "linattn_manifest.json").read_text())
    Report.model_validate_json((small_folder / "report.json").read_text())


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], "usage: python tests/test_schemas.py --write"
    for name, model in SCHEMAS.items():
        (DOCS / name).write_text(text(model))
