"""The table of models that linattn exports: one file and one line each."""

from linattn_models import attention, bytes, digits, langid, layer
from linattn_models.contract import (
    Domain,
    InputSpec,
    Model,
    ModelError,
    ModelOptions,
    Streaming,
    Task,
)

MODELS: dict[str, Model] = {
    record.name: record
    for record in (attention.MODEL, layer.MODEL, digits.MODEL, langid.MODEL, bytes.MODEL)
}

__all__ = [
    "MODELS",
    "Domain",
    "InputSpec",
    "Model",
    "ModelError",
    "ModelOptions",
    "Streaming",
    "Task",
]
