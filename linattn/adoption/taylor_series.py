"""``taylor-series-linear-attention``: https://pypi.org/project/taylor-series-linear-attention/.

    out_i = sum_j w_ij v_j / sum_j w_ij      w_ij = 1 + s + s^2 / 2      s = q_i . k_j / sqrt(D)

w is at least 1/2, so that their lower bound of the denominator acts for a sequence that is all
padding only. The features of its square are one for each pair of channels; the package may have
two, which gives the same.

Source: Arora et al. 2024, arXiv 2402.18668; Duman Keles et al. 2022, arXiv 2209.04881.
"""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial, require
from linattn.adoption.heads import join_heads, rotate_pairs, split_heads
from linattn.adoption.trials import token_trials, tokens
from linattn.adoption.weights import plain
from linattn.kernel import kernel_attention
from linattn.numerics import column_mask, widen

EPS = 1e-5
"""The lower bound of the denominator, a default of the package's forward."""


class SecondOrder(nn.Module):
    """Features ``[.., 1 + D + D (D + 1) / 2]`` whose products are 1 + s + s^2 / 2."""

    rows: Tensor
    columns: Tensor
    squares: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        rows, columns = torch.triu_indices(width, width)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)
        squares = torch.where(rows == columns, 0.5, 1.0)
        self.register_buffer("squares", squares, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of ``x [.., D]``."""
        rows, columns = x.index_select(-1, self.rows), x.index_select(-1, self.columns)
        pairs = rows * columns * self.squares.to(x.dtype).sqrt()
        return torch.cat((torch.ones_like(x[..., :1]), x, pairs), dim=-1)


class TaylorSeriesStandIn(nn.Module):
    """``TaylorSeriesLinearAttn``."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.heads = int(original.heads)
        self.scale = float(original.scale)
        self.eps = EPS
        self.shift_tokens = bool(original.shift_tokens)
        self.norm = original.norm
        self.to_q, self.to_kv = plain(original, "to_q.0", "to_kv.0")
        self.kv_heads = 1 if original.one_headed_kv else self.heads
        self.to_v_gates = original.to_v_gates[0] if original.to_v_gates is not None else None
        self.to_out = original.to_out
        rotary = original.rotary_emb
        self.freqs = rotary.freqs if rotary is not None else None
        self.features = SecondOrder(self.to_q.out_features // self.heads)

    def forward(
        self, x: Tensor, mask: Optional[Tensor] = None, context: Optional[Tensor] = None
    ) -> Tensor:
        """``[B, N, M]`` of ``x [B, N, M]``; ``mask [B, N]`` is True for real keys."""
        if self.shift_tokens:
            still, moved = torch.chunk(x, 2, dim=-1)
            moved = torch.cat((torch.zeros_like(moved[:, :1]), moved), dim=1)[:, :-1]
            x = torch.cat((still, moved), dim=-1)
        normed = self.norm(x)
        query = split_heads(self.to_q(normed), self.heads)
        packed = split_heads(self.to_kv(normed if context is None else context), 2 * self.kv_heads)
        key, value = torch.chunk(packed, 2, dim=1)
        freqs = self.freqs
        if freqs is not None:
            query, key = self.rotated(query, freqs), self.rotated(key, freqs)
        column = column_mask(mask, key) if mask is not None else None
        value = widen(value)
        sums = kernel_attention(
            self.features(widen(query) * self.scale),
            self.features(widen(key)),
            torch.cat((value, torch.ones_like(value[..., :1])), dim=-1),
            column,
            False,
            0.0,
        )
        output = (sums[..., :-1] / torch.clamp(sums[..., -1:], min=self.eps)).to(x.dtype)
        gates = self.to_v_gates
        if gates is not None:
            output = output * torch.sigmoid(gates(x)).transpose(1, 2).unsqueeze(-1)
        joined: Tensor = self.to_out(join_heads(output))
        return joined

    def rotated(self, x: Tensor, freqs: Tensor) -> Tensor:
        """``x [B, H, N, D]`` turned by its places."""
        place = x.new_ones([x.size(2)]).cumsum(0) - 1
        angles = place.unsqueeze(1) * freqs.to(x.dtype)
        return rotate_pairs(x, torch.sin(angles), torch.cos(angles))


def convert(original: Any) -> nn.Module:
    """The stand-in, or Unsupported."""
    require("causal", original.causal, False)
    return TaylorSeriesStandIn(original)


def trials(original: Any) -> Sequence[Trial]:
    """With a mask; and with a context, where there are no positions."""
    width = original.to_q[0].in_features
    found = token_trials(width, hidden="x", mask="mask")
    if original.rotary_emb is None:
        found += token_trials(width, hidden="x", more=lambda n: {"context": tokens(n + 3, width)})
    return found


PEERS = (
    Peer(
        package="taylor-series-linear-attention",
        layer="taylor_series_linear_attention.attention.TaylorSeriesLinearAttn",
        versions="0.2.0",
        method="kernel of second order",
        convert=convert,
        trials=trials,
    ),
)
