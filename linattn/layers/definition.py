"""What the oracles of the layers are written with: slow, obvious, one sequence at a time."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from linattn.recurrent import recurrent_oracle


def alone(hidden_states: Tensor, mask: Tensor | None, layer: Callable[[Tensor], Tensor]) -> Tensor:
    """``layer`` on the real tokens ``[1, n, M]`` of each sequence; zeros at the others."""
    output = torch.zeros_like(hidden_states)
    for row, sequence in enumerate(hidden_states):
        real = torch.ones(len(sequence), dtype=torch.bool) if mask is None else mask[row]
        if real.any():
            output[row, real] = layer(sequence[real].unsqueeze(0))[0]
    return output


def linear(x: Tensor, parameters: Mapping[str, Tensor], name: str) -> Tensor:
    """``x`` through the Linear called ``name``."""
    output = x @ parameters[f"{name}.weight"].T
    bias: Any = parameters.get(f"{name}.bias")
    return output if bias is None else output + bias


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The causal convolution of ``[1, n, C]``, token after token."""
    taps = weight.shape[-1]
    padded = torch.cat((x.new_zeros(1, taps - 1, x.shape[-1]), x), dim=1)
    rows = [(padded[:, t : t + taps] * weight[:, 0].T).sum(dim=1) for t in range(x.shape[1])]
    output = torch.stack(rows, dim=1)
    return output if bias is None else output + bias


def recurred(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor | None,
    beta: Tensor | None,
    scale: float,
) -> Tensor:
    """The recurrence from zeros, ``[1, n, H, E]``."""
    return recurrent_oracle(query, key, value, decay, beta, None, scale)[0]
