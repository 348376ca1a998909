"""Linear-cost attention as scriptable, exportable PyTorch modules.

The methods are in :data:`linattn.METHODS`; :class:`linattn.MultiHeadAttention` wraps one of
them into a layer. Shapes are written with the legend of :mod:`linattn.contract`.
"""

try:
    import torch as _torch  # noqa: F401  (only to say early, and clearly, that it is missing)
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "linattn needs torch, which is not installed; run: pip install 'linattn[export]' "
        "(to judge exported artifacts without torch, use linattn-check or import "
        "linattn_runtime_checks, which need only 'linattn[cpu]')",
        name="torch",
    ) from error

from linattn.adoption import adopt
from linattn.contract import (
    Capabilities,
    LayerMethod,
    LinattnError,
    Method,
    MethodError,
    StateSpec,
)
from linattn.fixed_length import at_length
from linattn.layer import NAMES, attention_layer, record_of
from linattn.layers import LAYERS
from linattn.methods import DEFAULT_METHODS, METHODS, method
from linattn.multihead import MultiHeadAttention
from linattn.torch_compat import TorchSelfAttention

__all__ = [
    "DEFAULT_METHODS",
    "LAYERS",
    "METHODS",
    "NAMES",
    "Capabilities",
    "LayerMethod",
    "LinattnError",
    "Method",
    "MethodError",
    "MultiHeadAttention",
    "StateSpec",
    "TorchSelfAttention",
    "adopt",
    "at_length",
    "attention_layer",
    "method",
    "record_of",
]
