"""Performer: softmax attention estimated by positive random features (FAVOR+).

    out_i = phi(q_i) S / (phi(q_i) . z)     S = sum_j phi(k_j) v_j^T     z = sum_j phi(k_j)
    softmax: phi(x) = exp(W x' - |x'|^2 / 2 - c) + eps                   x' = x / D^(1/4)
    relu:    phi(x) = relu(W x') + eps                                   W: [F, D], fixed

with c the largest entry of W x': of its own row for a query, of all real tokens for the keys of one
head of one sequence. Without eps it would cancel in the quotient. Neither do the factors 1/sqrt(F).

Source: Choromanski et al., "Rethinking Attention with Performers", 2021, arXiv 2009.14794, section
2 (lemma 1, orthogonal features) and appendix B; eps and c as in the authors' code. F = D ln D
unless given. The relu kernel is the paper's generalised attention; its authors take eps = 1e-3.
W is drawn once, as orthogonal blocks whose rows have the lengths of Gaussian ones, from torch's
global generator; it is a buffer, saved with the weights, and never drawn again.
Cost: O(N F (D + E)) time, O(N F) memory.
Numerics: every weight is at least F eps^2, so the quotient is safe; a fully masked sequence, which
has no weights, is divided by 1e-30. The gradient goes through c too, since eps makes the output
depend on it.
Masks: masked keys are left out of c, of S and of z. Masking the values alone, as public code does,
leaves padding in z.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, Method, MethodError
from linattn.kernel import kept_weights
from linattn.numerics import (
    check_heads,
    column_mask,
    lower_masked,
    token_sum,
    widen,
    zero_masked,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformerConfig:
    """Options.

    ``kernel``: which one W estimates. ``features``: F; None means D ln D. ``eps``: added to every
    feature. ``head_dim``: D, which a layer fills in.
    """

    kernel: Literal["softmax", "relu"] = "softmax"
    features: int | None = None
    eps: float = 1e-4
    head_dim: int = 64

    def __post_init__(self) -> None:
        for name in ("features", "head_dim"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise MethodError(f"performer.{name} must be at least 1, got {size}")
        if not 0 < self.eps < math.inf:
            raise MethodError(f"performer.eps must be above 0 and finite, got {self.eps!r}")


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: PerformerConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, through the N x N weights; run it in float64."""
    rows = parameters["projection"]

    def logits(x: Tensor) -> Tensor:
        narrow = x / math.sqrt(math.sqrt(config.head_dim))
        return torch.einsum("...nd,fd->...nf", narrow, rows)

    if config.kernel == "relu":
        phi_query = logits(query).clamp(min=0) + config.eps
        phi_key = logits(key).clamp(min=0) + config.eps
    else:
        top_query = logits(query).amax(-1, keepdim=True)
        # The largest of the real tokens, found where the others are at -inf.
        top_key = kept_weights(torch.ones_like(logits(key)).transpose(-1, -2), mask)
        top_key = torch.where(top_key.transpose(-1, -2) > 0, logits(key), -math.inf)
        top_key = top_key.amax((-2, -1), keepdim=True)
        top_key = torch.where(top_key > -math.inf, top_key, 0.0)
        half = 0.5 / config.head_dim**0.5
        square_query = half * query.square().sum(-1, keepdim=True)
        square_key = half * key.square().sum(-1, keepdim=True)
        phi_query = torch.exp(logits(query) - square_query - top_query) + config.eps
        phi_key = torch.exp(logits(key) - square_key - top_key) + config.eps
    weights = kept_weights(torch.matmul(phi_query, phi_key.transpose(-1, -2)), mask)
    total = weights.sum(-1, keepdim=True)
    return torch.matmul(weights, value) / torch.where(total > 0, total, 1.0)


class PerformerAttention(nn.Module):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    projection: Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.softmax: bool = config.kernel == "softmax"
        self.eps = float(config.eps)
        self.head_dim: int = config.head_dim
        self.scale = 1.0 / math.sqrt(math.sqrt(self.head_dim))
        features = config.features
        if features is None:
            features = max(int(self.head_dim * math.log(self.head_dim)), 1)
        self.register_buffer("projection", torch.empty(features, self.head_dim))
        self.reset_parameters()

    @torch.jit.unused
    def reset_parameters(self) -> None:
        """Draw W: orthogonal blocks of D rows, each row as long as a Gaussian one."""
        features, width = self.projection.shape
        with torch.no_grad():
            for start in range(0, features, width):
                rows = self.projection[start : start + width]
                rows.copy_(nn.init.orthogonal_(rows.new_empty(width, width))[: len(rows)])
            lengths = torch.randn_like(self.projection).norm(dim=1, keepdim=True)
            self.projection.mul_(lengths)

    def logits(self, x: Tensor) -> Tensor:
        """``W x'``: ``[.., N, F]``."""
        return torch.matmul(x, widen(self.projection).t() * self.scale)

    def half_square(self, x: Tensor) -> Tensor:
        """``|x'|^2 / 2``: ``[.., N, 1]``."""
        return x.square().sum(dim=-1, keepdim=True) * (0.5 * self.scale * self.scale)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes.

        Raises:
            ValueError: as all methods do; or queries of another width than ``head_dim``.
        """
        check_heads(query, key, value)
        if query.size(-1) != self.head_dim:
            raise ValueError(
                f"performer was built for head_dim = {self.head_dim}, "
                f"got query {query.shape}; build it with head_dim={query.size(-1)}"
            )
        dtype = query.dtype
        query, key, value = widen(query), widen(key), widen(value)
        phi_query = self.logits(query)
        column = column_mask(mask, key) if mask is not None else None
        phi_key = self.logits(key)
        if self.softmax:
            top = torch.amax(phi_query, dim=-1, keepdim=True)
            phi_query = torch.exp(phi_query - self.half_square(query) - top)
            kept = lower_masked(phi_key, column) if column is not None else phi_key
            top = torch.amax(kept, dim=[-2, -1], keepdim=True)
            if column is not None:
                real = torch.any(column, dim=-2, keepdim=True)
                top = torch.where(real, top, torch.zeros_like(top))
            phi_key = phi_key - self.half_square(key) - top
            if column is not None:
                phi_key = lower_masked(phi_key, column)  # exp of it could be infinite
            phi_key = torch.exp(phi_key)
        else:
            phi_query = torch.relu(phi_query)
            phi_key = torch.relu(phi_key)
        phi_query = phi_query + self.eps
        phi_key = zero_masked(phi_key + self.eps, column)
        context = torch.matmul(phi_key.transpose(-1, -2), zero_masked(value, column))
        total = torch.matmul(phi_query, token_sum(phi_key).transpose(-1, -2))
        output = torch.matmul(phi_query, context) / torch.clamp(total, min=1e-30)
        return output.to(dtype)


METHOD = Method(
    name="performer",
    title="Performer (FAVOR+)",
    formula="phi(Q) (phi(K)^T V) / (phi(Q) sum phi(K)), phi(x) = exp(W x' - |x'|^2 / 2 - c) + eps",
    source="Choromanski et al. 2021, arXiv 2009.14794",
    when=(
        "As an estimate of softmax attention from random features: weights trained with softmax "
        "are a start for it. More `features` bring it nearer, at a cost in proportion; large "
        "scores are estimated worst."
    ),
    config=PerformerConfig,
    module=PerformerAttention,
    oracle=oracle,
    capabilities=Capabilities(cost="linear"),
)
