"""Nystromformer: softmax attention through m landmarks, the means of m segments of the tokens.

    out = softmax(Q K~^T / sqrt(D)) Z (softmax(Q~ K^T / sqrt(D)) V) + conv(V)
    A = softmax(Q~ K~^T / sqrt(D))       Z_0 = A^T / max column sum
    Z <- Z (I + E + E^2 + E^3 / 4)       E = I - A Z

Z nears the pseudo-inverse of A; conv is depthwise along the tokens, one kernel for each head.

Source: Xiong et al., "Nystromformer", 2021, arXiv 2102.03902, section 3. Its iteration is
Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, which is the same polynomial.
Segments: n real tokens fall into segments of ceil(n / m), counted from the end; the first is
shorter where m does not divide n, and some are empty where n is small. An empty segment has no
landmark: its rows and columns of A and Z are zero, and it gets no weight.
Start: Z_0 belongs to one head of one sequence. Public code divides by the largest sum in the whole
batch, so that one sequence changes another; ``shared_scale`` takes the largest of all heads of one
sequence, which is what such code computes for a batch of one.
Masks: masked tokens are in no segment, in no softmax, and in no window of the convolution; their
own outputs are zero. Which tokens a segment holds follows from their rank among the real ones, so
padding on any side, and in between, changes nothing. The mask is of the queries too, which makes
the landmarks: so there must be a query for every key.
Cost: O(N m (D + E)) time, O(N m) memory.
Numerics: an iteration multiplies what belongs to small singular values of A, its rounding too, by
up to 3.25. After six of them, tokens that are nearly alike lose three digits: 1e-4 in float32.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.contract import Capabilities, Method, MethodError
from linattn.numerics import check_heads, column_mask, lower_masked, widen, zero_masked


@dataclass(frozen=True, slots=True, kw_only=True)
class NystromConfig:
    """Options.

    ``landmarks``: m. ``iterations``: of Z. ``kernel``: tokens in a window of the convolution, odd;
    None leaves it out. ``shared_scale``: one start of Z for all heads. ``heads``: kernels of the
    convolution, which a layer fills in; 1 is for any number of heads.
    """

    landmarks: int = 64
    iterations: int = 6
    kernel: int | None = 33
    shared_scale: bool = False
    heads: int = 1

    def __post_init__(self) -> None:
        for name in ("landmarks", "iterations", "kernel", "heads"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise MethodError(f"nystrom.{name} must be at least 1, got {size}")
        if self.kernel is not None and self.kernel % 2 == 0:
            raise MethodError(f"nystrom.kernel must be odd, got {self.kernel}")


def oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    config: NystromConfig,
    parameters: Mapping[str, Tensor],
) -> Tensor:
    """The definition, one head of one sequence after the other; run it in float64."""
    axes = query.shape[:-2]
    batch, heads = (*axes, 1, 1)[:2]
    q, k, v = (x.reshape(batch, heads, *x.shape[-2:]) for x in (query, key, value))
    real = torch.ones(batch, q.shape[2], dtype=torch.bool) if mask is None else mask
    real = real.reshape(batch, -1)
    output = torch.zeros(v.shape, dtype=v.dtype)
    kernels = parameters.get("kernels")
    for b in range(batch):
        kept = real[b]
        if not kept.any():
            continue
        parts = [_parts(q[b, h, kept], k[b, h, kept], config.landmarks) for h in range(heads)]
        column_sums = [float(middle.sum(0).max()) for _, middle, _ in parts]
        for h, (left, middle, right) in enumerate(parts):
            scale = max(column_sums) if config.shared_scale else column_sums[h]
            inverse = _inverse(middle, scale, config.iterations)
            mixed = left @ inverse @ right @ v[b, h, kept]
            if kernels is not None:
                taps = kernels[h if len(kernels) > 1 else 0].flatten()
                mixed = mixed + _convolved(v[b, h, kept], taps)
            output[b, h, kept] = mixed
    return output.reshape(value.shape)


def _parts(q: Tensor, k: Tensor, landmarks: int) -> tuple[Tensor, Tensor, Tensor]:
    """The three softmax matrices of real tokens ``[n, D]``."""
    n = len(q)
    size = math.ceil(n / landmarks)
    segments = [slice(max(end - size, 0), end) for end in range(n, 0, -size)][::-1]
    q = q / math.sqrt(q.shape[1])
    q_means = torch.stack([q[segment].mean(0) for segment in segments])
    k_means = torch.stack([k[segment].mean(0) for segment in segments])
    pairs = ((q, k_means), (q_means, k_means), (q_means, k))
    left, middle, right = (torch.softmax(x @ y.T, dim=-1) for x, y in pairs)
    return left, middle, right


def _inverse(a: Tensor, scale: float, iterations: int) -> Tensor:
    """The iteration as the paper writes it."""
    one = torch.eye(len(a), dtype=a.dtype)
    z = a.T / scale
    for _ in range(iterations):
        az = a @ z
        z = 0.25 * z @ (13 * one - az @ (15 * one - az @ (7 * one - az)))
    return z


def _convolved(v: Tensor, taps: Tensor) -> Tensor:
    """Row i is the sum of ``taps[t] v[i + t - half]`` over the rows that there are."""
    half = len(taps) // 2
    output = torch.zeros_like(v)
    for i in range(len(v)):
        for t in range(len(taps)):
            if 0 <= i + t - half < len(v):
                output[i] += taps[t] * v[i + t - half]
    return output


class NystromAttention(nn.Module):
    """See the head of this file; shapes as in :mod:`linattn.contract`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.landmarks: int = config.landmarks
        self.iterations: int = config.iterations
        self.shared_scale: bool = config.shared_scale
        self.heads: int = config.heads
        kernel = config.kernel
        self.kernels = (
            nn.Parameter(torch.empty(self.heads, 1, kernel, 1)) if kernel is not None else None
        )
        self.reset_parameters()

    @torch.jit.unused
    def reset_parameters(self) -> None:
        """Draw the kernels as ``torch.nn.Conv2d`` does."""
        if self.kernels is not None:
            nn.init.kaiming_uniform_(self.kernels, a=math.sqrt(5))

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        """Attend; see :mod:`linattn.contract` for shapes.

        Raises:
            ValueError: as all methods do; or there is not a query for every key, or there are
                neither as many kernels as heads nor one.
        """
        check_heads(query, key, value)
        if query.size(-2) != key.size(-2):
            raise ValueError(
                "nystrom needs a query for every key, since a mask and the landmarks are of both, "
                f"got query {query.shape} and key {key.shape}"
            )
        dtype = query.dtype
        column = column_mask(mask, key) if mask is not None else None
        query = zero_masked(widen(query), column) * (1.0 / math.sqrt(query.size(-1)))
        key = zero_masked(widen(key), column)
        value = zero_masked(widen(value), column)
        rank = self.rank(key, column)
        members, counts = self.segments(rank, key)
        filled = (counts > 0).unsqueeze(-1)
        share = torch.reciprocal(torch.clamp(counts, min=1).unsqueeze(-1).to(key.dtype))
        query_means = torch.matmul(members, query) * share
        key_means = (torch.matmul(members, key) * share).transpose(-1, -2)
        there = filled.transpose(-1, -2)
        left = torch.softmax(lower_masked(torch.matmul(query, key_means), there), dim=-1)
        middle = torch.softmax(lower_masked(torch.matmul(query_means, key_means), there), dim=-1)
        right = torch.matmul(query_means, key.transpose(-1, -2))
        if column is not None:
            right = lower_masked(right, column.transpose(-1, -2))
        seen = torch.matmul(torch.softmax(right, dim=-1), value)
        inverse = self.inverse(zero_masked(middle, filled))
        output = torch.matmul(left, torch.matmul(inverse, seen))
        kernels = self.kernels
        if kernels is not None:
            output = output + self.convolved(value, widen(kernels), rank, column)
        return zero_masked(output, column).to(dtype)

    def rank(self, key: Tensor, column: Optional[Tensor]) -> Tensor:
        """Of each token among the real ones, from 1: ``[N]``, or with its leading axes."""
        if column is None:
            return key.new_ones([key.size(-2)], dtype=torch.int64).cumsum(0)
        return column.squeeze(-1).to(torch.int64).cumsum(-1)

    def segments(self, rank: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Which tokens a segment holds, ``[.., m, N]`` of 0 and 1, and how many, ``[.., m]``.

        A matrix of comparisons: the padding and the cut that a reshape would need depend on N.
        Masked tokens, whose rank is that of the last real one, are zero rows.
        """
        m = self.landmarks
        count = rank[..., -1:]
        size = torch.div(count + (m - 1), m, rounding_mode="floor")
        before = key.new_ones([m], dtype=torch.int64).cumsum(0) - 1
        # Tokens up to the end of each segment; below zero where there are none.
        end = count - (m - 1 - before) * size
        counts = torch.clamp(torch.minimum(size, end), min=0)
        start = (end - size).unsqueeze(-1)
        place = rank.unsqueeze(-2)
        members = torch.logical_and(place > start, place <= end.unsqueeze(-1))
        return members.to(key.dtype), counts

    def inverse(self, a: Tensor) -> Tensor:
        """Z of A ``[.., m, m]``; rows and columns of zeros stay zero."""
        row = a.new_ones([a.size(-1)], dtype=torch.int64).cumsum(0)
        one = (row.unsqueeze(0) == row.unsqueeze(1)).to(a.dtype)
        scale = torch.amax(torch.sum(a, dim=-2), dim=-1)
        if self.shared_scale and a.dim() == 4:
            scale = torch.amax(scale, dim=-1, keepdim=True)
        # At least 1 in exact numbers, since the rows sum to 1; or 0 where all are empty.
        scale = torch.clamp(scale, min=0.5).unsqueeze(-1).unsqueeze(-1)
        z = a.transpose(-1, -2) / scale
        for _ in range(self.iterations):
            error = one - torch.matmul(a, z)
            series = one + torch.matmul(error, one + torch.matmul(error, one + 0.25 * error))
            z = torch.matmul(z, series)
        return z

    def convolved(
        self, value: Tensor, kernels: Tensor, rank: Tensor, column: Optional[Tensor]
    ) -> Tensor:
        """``[.., N, E]``: each real token's window holds the real tokens around it."""
        heads = self.heads
        if heads > 1 and (value.dim() != 4 or value.size(1) != heads):
            raise ValueError(
                f"nystrom was built with a kernel for each of {heads} heads, got value "
                f"{value.shape}; build it with that number of heads, or with heads=1"
            )
        place = rank
        moved = value
        if column is not None:
            # Real tokens moved to the front, in their order; place 0 takes what is masked.
            place = torch.where(column.squeeze(-1), rank, torch.zeros_like(rank))
            place = place.unsqueeze(-1).expand_as(value)
            moved = torch.nn.functional.pad(torch.zeros_like(value), [0, 0, 1, 0])
            moved = moved.scatter(-2, place, value)[..., 1:, :]
        one_by_one = moved.reshape([-1, heads, value.size(-2), value.size(-1)])
        output = torch.nn.functional.conv2d(
            one_by_one, kernels, None, padding=[kernels.size(2) // 2, 0], groups=heads
        ).reshape(value.shape)
        if column is None:
            return output
        return output.gather(-2, torch.clamp(place - 1, min=0))


METHOD = Method(
    name="nystrom",
    title="Nystromformer",
    formula="softmax(Q K~^T / sqrt(D)) Z softmax(Q~ K^T / sqrt(D)) V + conv(V), ~: segment means",
    source="Xiong et al. 2021, arXiv 2102.03902",
    when=(
        "As an estimate of softmax attention that keeps its sharp weights, for sequences much "
        "longer than `landmarks`. Where tokens are nearly alike it loses three digits in float32."
    ),
    config=NystromConfig,
    module=NystromAttention,
    oracle=oracle,
    capabilities=Capabilities(cost="linear", cross_attention=False, permutation_equivariant=False),
)
