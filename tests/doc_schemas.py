"""The published JSON Schemas, made from the models."""

import json
from typing import Literal

from pydantic import BaseModel

from linattn_export.own.spec import InputsSpec
from linattn_runtime_checks.contract.manifest import Manifest
from linattn_runtime_checks.results.report import Report
from roots import ROOT

DOCS = ROOT / "docs"
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
