"""Any attention layer by the name of its method."""

from typing import Any

from torch import nn

from linattn.contract import LayerMethod, Method, MethodError, unknown
from linattn.layers import LAYERS
from linattn.methods import METHODS
from linattn.multihead import MultiHeadAttention

NAMES = (*METHODS, *LAYERS)
"""Of all methods: those of query, key and value first, then those that are whole layers."""


def record_of(name: str) -> Method | LayerMethod:
    """The record of a method of either kind.

    Raises:
        MethodError: no method has that name; the message lists those that exist.
    """
    if name in LAYERS:
        return LAYERS[name]
    if name not in METHODS:
        raise MethodError(unknown("method", name, NAMES))
    return METHODS[name]


def attention_layer(d_model: int, heads: int, *, method: str, **options: Any) -> nn.Module:
    """A layer of ``hidden_states [B, N, M]`` (and ``mask [B, N]``) to ``[B, N, M]``.

    Args:
        d_model: model width M.
        heads: number of heads.
        method: a name in :data:`linattn.METHODS` or :data:`linattn.LAYERS`.
        options: fields of the method's config.

    Raises:
        MethodError: unknown method or option, or heads that do not fit.
    """
    record = record_of(method)
    if isinstance(record, LayerMethod):
        return record.layer(d_model, heads, record.configure(options))
    return MultiHeadAttention(d_model, heads, method=method, **options)
