"""Scriptable primitives that the methods share."""

from typing import Optional

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Half-precision tensors as float32; others unchanged.

    Sums over tokens leave the range of half precision long before they leave that of float32: a
    key sum passes 65504 near N = 1000 at unit scale.
    """
    if x.dtype == torch.float16 or x.dtype == torch.bfloat16:
        return x.float()
    return x


def elu_plus_one(x: Tensor) -> Tensor:
    """``elu(x) + 1``, without the cancellation.

    Written as ``relu(x) + exp(min(x, 0))``: ``elu(x) + 1`` itself rounds to 0 for x < -17 in
    float32 (and for x < -8 in bfloat16), where ``exp(x)`` is still far from 0.
    """
    return torch.relu(x) + torch.exp(torch.clamp(x, max=0.0))


def unit_rows(x: Tensor, eps: float) -> Tensor:
    """Rows of ``x`` divided by their L2 norm; a zero row stays zero."""
    # Not sqrt(sum(x * x)), whose gradient is NaN at a zero row.
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.clamp(norm, min=eps)


def token_sum(x: Tensor) -> Tensor:
    """The sum over tokens: ``[.., N, D]`` to ``[.., 1, D]``, as a matrix product.

    ONNX Runtime adds up an axis that is not the last one row after the other, and a product with a
    single row is treated likewise by PyTorch: in both the error grows with N. Products of several
    rows are accumulated in blocks, and it does not. So eight equal rows are computed and one kept.
    """
    return torch.matmul(x.new_ones([8, x.size(-2)]), x)[..., :1, :]


def column_mask(mask: Tensor, key: Tensor) -> Tensor:
    """The key padding mask as ``[B, 1, N, 1]``, ``[B, N, 1]`` or ``[N, 1]``, to suit ``key``.

    Raises:
        TypeError: ``mask`` is not boolean. Other libraries use the opposite meaning or additive
            masks, so nothing is converted silently.
        ValueError: the shape is not that of the keys.
    """
    if mask.dtype != torch.bool:
        raise TypeError(
            "mask must be a bool tensor (True = a real token); got another dtype; "
            "build it with a comparison, such as tokens != padding"
        )
    if key.dim() == 2:
        if mask.dim() != 1 or mask.size(0) != key.size(0):
            raise ValueError(
                f"mask must have shape [{key.size(0)}] to match the keys, got {mask.shape}"
            )
    elif mask.dim() != 2 or mask.size(0) != key.size(0) or mask.size(1) != key.size(-2):
        raise ValueError(
            f"mask must have shape [{key.size(0)}, {key.size(-2)}] (batch, key tokens) "
            f"to match the keys, got {mask.shape}"
        )
    column = mask.unsqueeze(-1)
    if key.dim() == 4:
        column = column.unsqueeze(1)
    return column


def zero_masked(x: Tensor, column: Optional[Tensor]) -> Tensor:
    """``x`` with the rows of masked tokens set to zero, whatever they held (NaN too)."""
    if column is None:
        return x
    return torch.where(torch.logical_not(column), x.new_zeros([]), x)


def zero_where_empty(output: Tensor, mask: Optional[Tensor]) -> Tensor:
    """``output [B, N, M]`` with zeros for sequences that have no real token.

    The bias of a projection would make them something else.
    """
    if mask is None:
        return output
    empty = torch.logical_not(torch.any(mask, dim=-1, keepdim=True)).unsqueeze(-1)
    return output.masked_fill(empty, 0.0)


def check_heads(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError unless the three tensors fit together."""
    if query.dim() < 2 or query.dim() > 4:
        raise ValueError(
            "query, key and value must be [N, D], [B, N, D] or [B, H, N, D], "
            f"got query {query.shape}"
        )
    if query.dim() != key.dim() or key.dim() != value.dim():
        raise ValueError(
            "query, key and value must have the same number of axes, got "
            f"{query.shape}, {key.shape} and {value.shape}"
        )
    if query.size(-1) != key.size(-1):
        raise ValueError(
            f"query and key must have the same width, got {query.shape} and {key.shape}"
        )
    if query.shape[:-2] != key.shape[:-2] or key.shape[:-2] != value.shape[:-2]:
        raise ValueError(
            "query, key and value must have the same batch and heads, got "
            f"{query.shape}, {key.shape} and {value.shape}"
        )
    if key.size(-2) != value.size(-2):
        raise ValueError(
            f"key and value must have the same number of tokens, got {key.shape} and {value.shape}"
        )


def lower_masked(x: Tensor, kept: Tensor) -> Tensor:
    """``x`` (logits) with the lowest finite float32 where ``kept`` is False.

    Not -inf: a softmax over nothing but masked entries is then uniform instead of NaN, and gives
    zero once the masked values are zero.
    """
    return x.masked_fill(torch.logical_not(kept), -3.4028234663852886e38)


def unit_keys(x: Tensor, eps: float) -> Tensor:
    """Rows times ``rsqrt(sum(x^2) + eps)``: what the delta rules' public models do to keys."""
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + eps)


def rms_rows(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Rows divided by their root mean square, times ``weight``; Zhang 2019, arXiv 1910.07467."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def by_head(x: Tensor, heads: int) -> Tensor:
    """``[.., H D]`` as ``[.., H, D]``."""
    return torch.unflatten(x, -1, [heads, x.size(-1) // heads])


def logistic(x: Tensor) -> Tensor:
    """The sigmoid, exact to rounding at both ends.

    ONNX Runtime's own ends near 1.5e-8 for whatever lies below -18; a row of such values that is
    then divided by its size is wrong by as much as it is large.
    """
    small = torch.exp(-torch.abs(x))
    return torch.where(x < 0, small, torch.ones_like(small)) / (1.0 + small)


def log_logistic(x: Tensor) -> Tensor:
    """The log of the sigmoid, finite for every finite ``x``.

    Exporters write ``logsigmoid`` as the log of a sigmoid, which is -inf, or ends near -18, where
    the sigmoid rounds to nothing.
    """
    return torch.clamp(x, max=0.0) - torch.log(1.0 + torch.exp(-torch.abs(x)))


def silu(x: Tensor) -> Tensor:
    """``x`` times its sigmoid; see :func:`logistic`."""
    return x * logistic(x)
