"""Short causal convolution of every channel, with the tokens before as its state.

    y[t, c] = sum_{i < K} w[c, i] x[t - K + 1 + i, c] (+ b[c])

Source: Poli et al. 2023, arXiv 2302.10866, and Gu and Dao 2023, arXiv 2312.00752; the state is laid
out as in ONNX's CausalConvWithState-27.
"""

from typing import Optional

import torch
from torch import Tensor


def causal_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    state: Tensor,
    mask: Optional[Tensor],
    one_token: bool = False,
) -> tuple[Tensor, Tensor]:
    """Convolve.

    A masked token is none: the window of a token after it holds the real ones before. What comes
    out in its own place is of no use.

    Args:
        x: ``[B, N, C]``.
        weight: ``[C, 1, K]``, K at least 2.
        bias: ``[C]`` or None.
        state: the K - 1 tokens before, ``[B, C, K - 1]``, the latest last; zeros at the start.
        mask: bool ``[B, N]`` or None.
        one_token: N is 1.

    Returns:
        ``[B, N, C]``, and the state after the last token.

    Raises:
        ValueError: the state has another shape.
    """
    before = weight.size(2) - 1
    if (
        state.dim() != 3
        or state.size(0) != x.size(0)
        or list(state.shape[1:])
        != [
            weight.size(0),
            before,
        ]
    ):
        raise ValueError(
            f"the state of the convolution must be [B, C, K - 1] = "
            f"{[x.size(0), weight.size(0), before]}, got {list(state.shape)}; start with zeros, "
            "and then pass the state that came out"
        )
    columns = x.transpose(1, 2).clone(memory_format=torch.contiguous_format)
    columns = torch.cat((state.to(x.dtype), columns), dim=2)
    if mask is None:
        output = _convolved(columns, weight, bias, one_token)
        return _tokens(output), columns[:, :, x.size(1) :]
    # Real tokens moved to the right end, in their order; place 0 takes what is masked.
    there = torch.cat((torch.ones_like(mask[:, :1]).expand(-1, before), mask), dim=1)
    rank = there.to(torch.int64).cumsum(1)
    place = torch.where(there, columns.size(2) - rank[:, -1:] + rank, torch.zeros_like(rank))
    place = place.unsqueeze(1).expand_as(columns)
    moved = torch.nn.functional.pad(torch.zeros_like(columns), [1, 0])
    moved = moved.scatter(2, place, columns)[:, :, 1:]
    output = _convolved(moved, weight, bias, one_token)
    back = torch.clamp(place[:, :, before:] - weight.size(2), min=0)
    return _tokens(output.gather(2, back)), moved[:, :, x.size(1) :]


def _convolved(columns: Tensor, weight: Tensor, bias: Optional[Tensor], one_token: bool) -> Tensor:
    """``[B, C, N]`` of ``[B, C, N + K - 1]``."""
    if one_token:
        output = (columns * weight.squeeze(1)).sum(dim=2, keepdim=True)
        return output if bias is None else output + bias.unsqueeze(1)
    if columns.dtype == torch.float64:
        # PyTorch starts its threads anew for every channel: seconds where others use the cores.
        taps = weight.size(2)
        length = columns.size(2) - taps + 1
        output = torch.zeros_like(columns[:, :, :length])
        for i in range(taps):
            output = output + columns[:, :, i : i + length] * weight[:, :, i]
        return output if bias is None else output + bias.unsqueeze(1)
    return torch.nn.functional.conv1d(columns, weight, bias, groups=weight.size(0))


def _tokens(columns: Tensor) -> Tensor:
    return columns.transpose(1, 2).clone(memory_format=torch.contiguous_format)
