"""Linformer: keys and values projected along the token axis to a fixed number of slots.

    out_i = sum_r softmax_r(q_i . (E K)_r / sqrt(D)) (F V)_r      E, F: [R, N_max], learned

Source: Wang, Li, Khabsa, Fang, Ma, "Linformer: Self-Attention with Linear Complexity", 2020,
arXiv 2006.04768, section 4; E and F are shared by the heads and drawn from N(0, 1/R).
Cost: O(N R (D + E)) time, O(N R) memory.
Lengths: a sequence of N < N_max tokens uses the first N columns of E and F, which equals padding
K and V with zero rows up to N_max. N > N_max has no defined answer and is refused.
Masks: masked rows of K and V become zero before E and F. The R slots themselves are never
masked: each mixes all tokens.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, Method, MethodError
from linattn.numerics import check_heads, column_mask, widen, zero_masked
from linattn.torch_internals import parameters_of, with_own_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class LinformerConfig:
    """``rank``: slots R. ``max_length``: N_max, the longest sequence of keys."""

    rank: int = 256
    max_length: int = 4096

    def __post_init__(self) -> None:
        for name in ("rank", "max_length"):
            if getattr(self, name) < 1:
                raise MethodError(f"linformer.{name} must be at least 1, got {getattr(self, name)}")


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: LinformerConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition on K and V padded with zero rows to N_max; run it in float64."""
    if mask is not None:
        column = mask.unsqueeze(1).unsqueeze(-1) if key.dim() == 4 else mask.unsqueeze(-1)
        key, value = key * column, value * column
    missing = config.max_length - key.shape[-2]
    key = nn.functional.pad(key, (0, 0, 0, missing))
    value = nn.functional.pad(value, (0, 0, 0, missing))
    slots_key = torch.einsum("rn,...nd->...rd", parameters["key_projection"], key)
    slots_value = torch.einsum("rn,...ne->...re", parameters["value_projection"], value)
    scores = torch.einsum("...ld,...rd->...lr", query, slots_key) / math.sqrt(query.shape[-1])
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return torch.einsum("...lr,...re->...le", weights, slots_value)


class LinformerAttention(nn.Module):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.rank: int = config.rank
        self.max_length: int = config.max_length
        self.key_projection = nn.Parameter(torch.empty(self.rank, self.max_length))
        self.value_projection = nn.Parameter(torch.empty(self.rank, self.max_length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw E and F from N(0, 1/R), as the paper does."""
        nn.init.normal_(self.key_projection, std=self.rank**-0.5)
        nn.init.normal_(self.value_projection, std=self.rank**-0.5)

    @torch.jit.unused
    def at_length(self, length: int) -> "LinformerAttention":
        """The same module for ``length`` tokens and no more, with only the columns they use."""
        self.check_length(length)
        short = with_own_parameters(self)
        short.config = LinformerConfig(rank=self.rank, max_length=length)
        short.max_length = length
        for name, long in parameters_of(self).items():
            assert long is not None
            columns = long.detach()[:, :length].clone()
            setattr(short, name, nn.Parameter(columns, requires_grad=long.requires_grad))
        return short

    def check_length(self, length: int) -> None:
        """Raise ValueError for more keys than the projections have columns."""
        if length > self.max_length:
            raise ValueError(
                f"linformer was built for at most N_max = {self.max_length} tokens, "
                f"got N = {length}; shorten the input or build with a larger max_length"
            )

    def compress(self, projection: Tensor, x: Tensor) -> Tensor:
        """``(projection[:, :n] x)^T``: ``[.., width, R]`` of x ``[.., n, width]``.

        Rows of the transposed projection, because columns of the projection are contiguous at
        n = N_max only; torch.export asks whether they are, and then excludes that length.
        """
        return torch.matmul(x.transpose(-1, -2), widen(projection).t()[: x.size(-2)])

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes."""
        check_heads(query, key, value)
        length = key.size(-2)
        self.check_length(length)
        column = column_mask(mask, key) if mask is not None else None
        key = zero_masked(widen(key), column)
        value = zero_masked(widen(value), column)
        scale = 1.0 / math.sqrt(query.size(-1))
        slots_key = self.compress(self.key_projection, key) * scale
        slots_value = self.compress(self.value_projection, value)
        weights = torch.softmax(torch.matmul(widen(query), slots_key), dim=-1)
        return torch.matmul(weights, slots_value.transpose(-1, -2)).to(query.dtype)


METHOD = Method(
    name="linformer",
    title="Linformer",
    formula="softmax(Q (E K)^T / sqrt(D)) (F V), E and F: [R, N_max] learned",
    source="Wang et al. 2020, arXiv 2006.04768",
    when=(
        "Where the longest sequence is known when the model is trained, and weights as sharp as "
        "softmax's are wanted. Its projections are learned for places in the sequence: it has no "
        "causal form, and padding belongs at the end."
    ),
    config=LinformerConfig,
    module=LinformerAttention,
    oracle=oracle,
    capabilities=Capabilities(cost="linear", any_length=False, permutation_equivariant=False),
    shrunk=lambda length: {"rank": 4, "max_length": length},
)
