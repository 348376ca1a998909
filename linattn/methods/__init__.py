"""The table of attention methods: one file and one line each."""

from linattn.contract import Method, MethodError, unknown
from linattn.methods import efficient, elu, linformer, relu, softmax, taylor

METHODS: dict[str, Method] = {
    record.name: record
    for record in (
        softmax.METHOD,
        efficient.METHOD,
        elu.METHOD,
        relu.METHOD,
        taylor.METHOD,
        linformer.METHOD,
    )
}


def method(name: str) -> Method:
    """The record of ``name``.

    Raises:
        MethodError: no method has that name; the message lists those that exist.
    """
    if name not in METHODS:
        raise MethodError(unknown("method", name, METHODS))
    return METHODS[name]
