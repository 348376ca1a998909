"""Attention through a positive feature map: the core of ``elu`` and ``relu``.

    out_i = phi(q_i) S / (phi(q_i) . z + eps)      S = sum_j phi(k_j) v_j^T     z = sum_j phi(k_j)

The mask applies to phi(k), which enters both sums. Masking v alone would leave padding in z, and
masking k before phi would too, since phi(0) need not be 0.
"""

from typing import Optional

import torch
from torch import Tensor

from linattn.numerics import token_sum, zero_masked


def kernel_attention(
    phi_query: Tensor,
    phi_key: Tensor,
    value: Tensor,
    column: Optional[Tensor],
    normalize: bool,
    eps: float,
) -> Tensor:
    """Attention from features, in the dtype of the inputs.

    Args:
        phi_query: features of the queries, ``[.., L, D]``.
        phi_key: features of the keys, ``[.., N, D]``.
        value: ``[.., N, E]``.
        column: from :func:`linattn.numerics.column_mask`.
        normalize: divide by ``phi(q) . z + eps``.
        eps: added to the normaliser.

    Returns:
        ``[.., L, E]``.
    """
    phi_key = zero_masked(phi_key, column)
    value = zero_masked(value, column)
    context = torch.matmul(phi_key.transpose(-1, -2), value)
    output = torch.matmul(phi_query, context)
    if normalize:
        key_sum = token_sum(phi_key).transpose(-1, -2)
        output = output / (torch.matmul(phi_query, key_sum) + eps)
    return output


def kernel_oracle(
    phi_query: Tensor,
    phi_key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    normalize: bool,
    eps: float,
    causal: bool = False,
) -> Tensor:
    """The same through the N x N weights, in the order of the definition."""
    products = torch.matmul(phi_query, phi_key.transpose(-1, -2))
    weights = kept_weights(products, mask, causal=causal)
    if normalize:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + eps)
    return torch.matmul(weights, value)


def kept_weights(weights: Tensor, mask: Optional[Tensor], *, causal: bool = False) -> Tensor:
    """For oracles: ``weights [.., L, N]`` with zeros for masked and, if causal, for later keys."""
    if causal:
        weights = weights.tril()
    if mask is None:
        return weights
    row = mask.unsqueeze(-2)
    return weights * (row.unsqueeze(1) if weights.dim() == 4 else row)
