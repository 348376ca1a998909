"""Heads: queries, keys and values may have fewer heads than there are states."""

from typing import Optional

from torch import Tensor

from linattn.numerics import widen


def grouped(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Optional[Tensor],
    beta: Optional[Tensor],
) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
    """All of them in float32 or wider and with as many heads as the one that has most.

    A head of the smaller ones serves neighbours (``repeat_interleave``, not ``tile``): with 2 key
    heads and 4 value heads, values 0 and 1 share key 0.

    Raises:
        ValueError: the shapes do not fit together; see :func:`linattn.recurrent.chunked`.
    """
    check(query, key, value, decay, beta)
    heads = max(query.size(2), key.size(2), value.size(2))
    if decay is not None:
        decay = _repeated(widen(decay), heads)
    if beta is not None:
        beta = _repeated(widen(beta), heads)
    return (
        _repeated(widen(query), heads),
        _repeated(widen(key), heads),
        _repeated(widen(value), heads),
        decay,
        beta,
    )


def per_channel(decay: Tensor) -> Tensor:
    """``[B, N, H, 1]`` of a decay for each head, ``[B, N, H, D]`` as it is."""
    return decay.unsqueeze(-1) if decay.dim() == 3 else decay


def _repeated(x: Tensor, heads: int) -> Tensor:
    if x.size(2) == heads:
        return x
    return x.repeat_interleave(heads // x.size(2), dim=2)


def check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Optional[Tensor],
    beta: Optional[Tensor],
) -> None:
    """Raise ValueError unless the tensors fit together."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError(
            "query, key and value must be [B, N, H, D], "
            f"got {query.shape}, {key.shape} and {value.shape}"
        )
    if query.size(3) != key.size(3):
        raise ValueError(
            f"query and key must have the same width, got {query.shape} and {key.shape}"
        )
    if key.size(0) != query.size(0) or value.size(0) != query.size(0):
        raise ValueError(
            "query, key and value must have the same batch, "
            f"got {query.shape}, {key.shape} and {value.shape}"
        )
    if key.size(1) != query.size(1) or value.size(1) != query.size(1):
        raise ValueError(
            "query, key and value must have the same number of tokens, "
            f"got {query.shape}, {key.shape} and {value.shape}"
        )
    if query.size(1) < 1:
        raise ValueError(f"there must be at least one token, got query {query.shape}")
    heads = max(query.size(2), key.size(2), value.size(2))
    if heads % query.size(2) or heads % key.size(2) or heads % value.size(2):
        raise ValueError(
            "the heads of query, key and value must divide the largest of them, "
            f"got {query.size(2)}, {key.size(2)} and {value.size(2)}"
        )
    if beta is not None:
        _check_gate("beta", beta, query, heads, 3)
    if decay is not None:
        _check_gate("decay", decay, query, heads, 4)
        if decay.dim() == 4 and decay.size(3) != key.size(3):
            raise ValueError(
                f"decay for each channel must be as wide as the keys, {key.size(3)}, "
                f"got {decay.shape}"
            )


def _check_gate(name: str, gate: Tensor, query: Tensor, heads: int, axes: int) -> None:
    if gate.dim() != 3 and gate.dim() != axes:
        raise ValueError(
            f"{name} must be [B, N, H]{' or [B, N, H, D]' if axes == 4 else ''}, got {gate.shape}"
        )
    if gate.size(0) != query.size(0) or gate.size(1) != query.size(1) or heads % gate.size(2):
        raise ValueError(
            f"{name} must have the batch and tokens of the query {query.shape} and a number of "
            f"heads that divides {heads}, got {gate.shape}"
        )


def check_state(state: Tensor, query: Tensor, value: Tensor) -> None:
    """Raise ValueError unless ``state`` is ``[B, H, D, E]`` of grouped queries and values."""
    expected = [query.size(0), query.size(2), query.size(3), value.size(3)]
    if list(state.shape) != expected:
        raise ValueError(
            f"state must be [B, H, D, E] = {expected}, got {list(state.shape)}; start with zeros, "
            "and then pass the state that came out"
        )
    if state.dtype != query.dtype:
        raise TypeError(
            "state must be float32 (float64 for float64 inputs), whatever the inputs are: a state "
            f"in half precision drifts; got {state.dtype}"
        )
