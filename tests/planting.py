"""Faults that are exported in place of a method's own forward."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from linattn_export.capture import program as capture_module

Forward = Callable[..., Tensor]


def plant(monkeypatch: pytest.MonkeyPatch, module: type[nn.Module], forward: Forward) -> None:
    """Export ``forward`` in place of the module's own; the reference keeps the right one."""
    original = module.forward
    real_capture = capture_module.capture

    def capture_faulty(*args: object) -> object:
        monkeypatch.setattr(module, "forward", forward)
        try:
            return real_capture(*args)  # type: ignore[arg-type]
        finally:
            monkeypatch.setattr(module, "forward", original)

    monkeypatch.setattr("linattn_export.formats.base.capture", capture_faulty)


def phi(x: Tensor) -> Tensor:
    return torch.relu(x) + torch.exp(torch.clamp(x, max=0.0))


def elu(q: Tensor, k: Tensor, v: Tensor, eps: float = 1e-6, scale: float = 1.0) -> Tensor:
    k = phi(k)
    return phi(q) @ (k.transpose(-1, -2) @ v) / (phi(q) @ k.sum(-2).unsqueeze(-1) * scale + eps)


def normaliser_dropped(self: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return phi(q) @ (phi(k).transpose(-1, -2) @ v)
