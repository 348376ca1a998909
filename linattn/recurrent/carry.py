"""One chunk after the other: what reads the state, and what it becomes.

It is the one thing that has to go through the chunks in their order. What can be done for all at
once is done before, but for products whose result only one chunk needs: here they stay in the
cache.
"""

import torch
from torch import Tensor


def carried(
    state: Tensor, chunks: list[Tensor], mask: Tensor, scale: float, delta: bool, decay: str
) -> tuple[Tensor, Tensor]:
    """Run :func:`_turn` over the first axis of all of ``chunks``.

    Args:
        state: before the first chunk, ``[B, H, D, E]``.
        chunks: what a turn takes, each with the chunks as its first axis.
        mask: what the products of queries and keys are multiplied by.
        scale: of the queries.
        delta: whether the rule is one of the delta rules.
        decay: of each ``head`` or ``channel``, or ``none``.

    Returns:
        The outputs ``[chunks, B, H, C, E]`` and the state after the last.
    """
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return _looped(state, chunks, mask, scale, delta, decay)
    if torch.compiler.is_exporting():
        return _scanned(state, chunks, mask, scale, delta, decay)
    return _looped(state, chunks, mask, scale, delta, decay)


def _looped(
    state: Tensor, chunks: list[Tensor], mask: Tensor, scale: float, delta: bool, decay: str
) -> tuple[Tensor, Tensor]:
    outputs = []
    for place in range(chunks[0].size(0)):
        state, output = _turn(state, [x[place] for x in chunks], mask, scale, delta, decay)
        outputs.append(output)
    return torch.stack(outputs), state


@torch.jit.unused
def _scanned(
    state: Tensor, chunks: list[Tensor], mask: Tensor, scale: float, delta: bool, decay: str
) -> tuple[Tensor, Tensor]:
    """The same as an operator of its own: torch.export would unroll the loop and fix its length."""
    from linattn.torch_internals import scan

    def turn(state: Tensor, chunk: list[Tensor]) -> tuple[Tensor, Tensor]:
        return _turn(state, chunk, mask, scale, delta, decay)

    last, outputs = scan(turn, state, chunks)
    return outputs, last


def _turn(
    state: Tensor, chunk: list[Tensor], mask: Tensor, scale: float, delta: bool, decay: str
) -> tuple[Tensor, Tensor]:
    """The state after a chunk, and its output.

    A chunk is of queries, keys and values, for the delta rules the inverse, and of

        none      which tokens there are, but for the delta rule
        head      decays between tokens, since the chunk began, until it ends, of all of it
        channel   the products of tokens, the same three decays
    """
    query, key, value = chunk[0], chunk[1], chunk[2]
    reads = key
    if decay == "none":
        own = torch.matmul(query, key.transpose(-1, -2)) * mask
        if not delta:
            key = key * chunk[-1]
    else:
        own = chunk[-4]
        if decay == "head":
            own = torch.matmul(query, key.transpose(-1, -2)) * own
        own = own * scale
        query = query * chunk[-3]
        if delta:
            reads = key * chunk[-3]
        key = key * chunk[-2]
    output = torch.matmul(query, state) * scale
    if delta:
        value = torch.matmul(chunk[3], value - torch.matmul(reads, state))
    output = output + torch.matmul(own, value)
    if decay != "none":
        state = state * chunk[-1]
    return state + torch.matmul(key.transpose(-1, -2), value), output
