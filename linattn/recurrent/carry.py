"""The state before every chunk, from what each chunk does to it.

    S_{c+1} = F_c S_c + U_c

It is the one thing that goes through the chunks in their order; all else is done for all at once.
A triangular product over the chunks would do without an order, and cost N^2.
"""

from typing import Optional

import torch
from torch import Tensor


def states(start: Tensor, added: Tensor, kept: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """All states and the last.

    Args:
        start: before the first chunk, ``[B, H, D, E]``.
        added: U, ``[chunks, B, H, D, E]``.
        kept: F: ``[chunks, B, H]`` or ``[chunks, B, H, D]`` to multiply by, for the delta rules
            ``[chunks, B, H, D, D]`` as matrices; None for 1.

    Returns:
        The states before each chunk, ``[chunks, B, H, D, E]``, and the one after the last.
    """
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return _looped(start, added, kept)
    if torch.compiler.is_exporting():
        return _scanned(start, added, kept)
    return _looped(start, added, kept)


def _looped(start: Tensor, added: Tensor, kept: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    state = start
    before = []
    for chunk in range(added.size(0)):
        before.append(state)
        if kept is not None:
            state = _next(state, kept[chunk])
        state = state + added[chunk]
    return torch.stack(before), state


def _next(state: Tensor, kept: Tensor) -> Tensor:
    if kept.dim() == 4:
        return torch.matmul(kept, state)
    return (kept.unsqueeze(-1) if kept.dim() == 3 else kept.unsqueeze(-1).unsqueeze(-1)) * state


@torch.jit.unused
def _scanned(start: Tensor, added: Tensor, kept: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """The same as an operator of its own: torch.export would unroll the loop and fix its length."""
    from torch._higher_order_ops.scan import scan

    def step(state: Tensor, chunk: list[Tensor]) -> tuple[Tensor, Tensor]:
        kept_here = _next(state, chunk[1]) if len(chunk) == 2 else state
        return kept_here + chunk[0], state.clone()

    last, before = scan(step, start, [added] if kept is None else [added, kept])
    return before, last
