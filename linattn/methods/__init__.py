"""The table of attention methods: one file and one line each."""

from linattn.contract import Method, MethodError, unknown
from linattn.methods import (
    causal_elu,
    causal_relu,
    causal_taylor,
    efficient,
    elu,
    linformer,
    nystrom,
    performer,
    relu,
    retention,
    softmax,
    taylor,
)

METHODS: dict[str, Method] = {
    record.name: record
    for record in (
        softmax.METHOD,
        efficient.METHOD,
        elu.METHOD,
        relu.METHOD,
        taylor.METHOD,
        linformer.METHOD,
        performer.METHOD,
        nystrom.METHOD,
        causal_elu.METHOD,
        causal_relu.METHOD,
        causal_taylor.METHOD,
        retention.METHOD,
    )
}

DEFAULT_METHODS = ("softmax", "efficient", "elu", "relu", "taylor", "linformer")
"""Methods that are built where none is named, and that ``digits`` was trained with."""


def method(name: str) -> Method:
    """The record of ``name``.

    Raises:
        MethodError: no method has that name; the message lists those that exist.
    """
    if name not in METHODS:
        raise MethodError(unknown("method", name, METHODS))
    return METHODS[name]
