"""Runs recurrent layers of PyTorch with gates as exact as a runtime's kernel has them.

ONNX Runtime's GRU, LSTM and RNN approximate sigmoid and tanh inside of one operator: right to a few
roundings of their range, which is 1, and not of each number. On hostile inputs gates are saturated,
PyTorch is exact by chance, and an export is not wrong for the last bit of a 1 or for 1e-8 beside 0.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from linattn.torch_internals import TorchDispatchMode, without_onednn
from linattn_export.live_module.switches import under

_aten = torch.ops.aten
_GATES = {_aten.sigmoid.default, _aten.sigmoid_.default, _aten.tanh.default, _aten.tanh_.default}
_UNITS = 4.0
"""Roundings of 1 by which a gate is moved; 4.1 were seen."""


class RoughGates(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it every sigmoid and tanh is off by a few roundings of 1."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func not in _GATES or not isinstance(found, Tensor):
            return found
        draw = torch.rand(found.shape, generator=self._generator, dtype=torch.float64)
        unit = _UNITS * torch.finfo(found.dtype).eps / 2
        moved = (found.double() + (2 * draw - 1) * unit).to(found.dtype)
        return found.copy_(moved) if func.name().endswith("_") else moved


def with_rough_gates(module: nn.Module, run: Callable[[], Any]) -> Any | None:
    """What ``run`` gives with them; None where ``module`` has no such layer."""
    if not any(isinstance(part, nn.RNNBase) for part in module.modules()):
        return None
    with without_onednn():  # whose layer is one operator too
        return under(RoughGates(), run)
