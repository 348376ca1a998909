"""Exports linear-attention models to ONNX, TorchScript and torch.export, and has them judged.

``from linattn_export.build.pipeline import build`` is the call behind ``linattn-export build``;
``from linattn_export import export_module`` exports a module of one's own.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linattn_export.build.from_python import export_module

__all__ = ["export_module"]


def __getattr__(name: str) -> Any:
    """``export_module``, imported when asked for: ``--help`` must not wait for torch."""
    if name != "export_module":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from linattn_export.build.from_python import export_module

    return export_module
