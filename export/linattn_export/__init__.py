"""Exports linear-attention models to ONNX, TorchScript and torch.export, and has them judged.

``from linattn_export.pipeline import build`` is the call behind ``linattn-export build``.
"""
