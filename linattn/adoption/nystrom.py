"""``nystrom-attention``: https://pypi.org/project/nystrom-attention/.

Theirs puts zero rows before the tokens until there are a multiple of m, and cuts them into m runs.
Without a mask these rows are keys like others, of logit 0. Here nothing is padded: how many rows
there would be enters the sums, and the graph holds for every length.

Theirs starts the iteration of a whole batch from its largest sum, so that one sequence changes
another; ours from the largest of each sequence.
"""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial
from linattn.adoption.heads import join_heads, split_heads
from linattn.adoption.trials import token_trials
from linattn.adoption.weights import plain
from linattn.methods.nystrom import NystromAttention, NystromConfig
from linattn.numerics import column_mask, lower_masked, widen, zero_masked


class NystromStandIn(nn.Module):
    """``NystromAttention`` of the package, around the segments and the inverse of our method."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.heads = int(original.heads)
        self.scale = float(original.scale)
        self.eps = float(original.eps)
        (self.to_qkv,) = plain(original, "to_qkv")
        self.to_out = original.to_out
        self.res_conv = original.res_conv if original.residual else None
        config = NystromConfig(
            landmarks=original.num_landmarks,
            iterations=original.pinv_iterations,
            kernel=None,
            shared_scale=True,
        )
        self.method = NystromAttention(config)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """``[B, N, M]`` of ``x [B, N, M]``; ``mask [B, N]`` is True for real tokens."""
        packed = split_heads(widen(self.to_qkv(x)), 3 * self.heads)
        query, key, value = torch.chunk(packed, 3, dim=1)
        column: Optional[Tensor] = None
        if mask is not None:
            column = column_mask(mask, key)
            query, key, value = (
                zero_masked(query, column),
                zero_masked(key, column),
                zero_masked(value, column),
            )
        output = self.attended(query * self.scale, key, value, column)
        convolution = self.res_conv
        if convolution is not None:
            output = output + convolution(value.to(x.dtype))
        joined: Tensor = self.to_out(join_heads(output.to(x.dtype)))
        return joined

    def attended(
        self, query: Tensor, key: Tensor, value: Tensor, column: Optional[Tensor]
    ) -> Tensor:
        """The attention ``[B, H, N, D]``, without the convolution."""
        members, _ = self.method.segments(self.method.rank(key, None), key)
        m = members.size(-2)
        length = members.new_ones([members.size(-1)]).sum()
        size = torch.ceil(length / m)
        padded = size * m - length
        if column is None:
            query_means = torch.matmul(members, query) / size
            key_means = torch.matmul(members, key) / size
            filled = torch.ones_like(members[:, :1]).to(torch.bool)
            real = torch.ones_like(query[..., :1]).to(torch.bool)
        else:
            counts = torch.matmul(members, column.to(key.dtype))
            query_means = torch.matmul(members, query) / (counts + self.eps)
            key_means = torch.matmul(members, key) / (counts + self.eps)
            filled, real = counts > 0, column
        there = filled.transpose(-1, -2)
        key_means = key_means.transpose(-1, -2)
        left = torch.matmul(query, key_means)
        left = torch.softmax(lower_masked(left, torch.logical_and(real, there)), dim=-1)
        middle = torch.matmul(query_means, key_means)
        middle = torch.softmax(lower_masked(middle, torch.logical_and(filled, there)), dim=-1)
        right = torch.matmul(query_means, key.transpose(-1, -2))
        right = lower_masked(right, torch.logical_and(filled, real.transpose(-1, -2)))
        seen = torch.matmul(self.weights(right, filled, padded, column is None), value)
        return torch.matmul(torch.matmul(left, self.method.inverse(middle)), seen)

    def weights(self, right: Tensor, filled: Tensor, padded: Tensor, attended: bool) -> Tensor:
        """A softmax in which ``padded`` rows of logit 0 take part, if they are attended."""
        if attended:
            top = torch.clamp(torch.amax(right, dim=-1, keepdim=True), min=0.0)
            weights = torch.exp(right - top)
            total = weights.sum(dim=-1, keepdim=True) + padded * torch.exp(-top)
            return weights / total
        # A segment without a real token looks at all rows alike, those that are not here too.
        weights = torch.softmax(right, dim=-1)
        rows = right.new_ones([right.size(-1)]).sum()
        return torch.where(filled, weights, weights * (rows / (rows + padded)))


def trials(original: Any) -> Sequence[Trial]:
    """With a mask, at multiples of the landmarks and not."""
    return token_trials(original.to_qkv.in_features, hidden="x", mask="mask")


PEERS = (
    Peer(
        package="nystrom-attention",
        layer="nystrom_attention.nystrom_attention.NystromAttention",
        versions="0.0.14",
        method="nystrom",
        convert=NystromStandIn,
        trials=trials,
    ),
)
