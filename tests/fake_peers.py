"""Attention layers of a package that does not exist, right and wrong, and converters of them."""

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.adoption import Peer
from linattn.adoption.contract import require
from linattn.adoption.heads import join_heads, split_heads
from linattn.adoption.trials import token_trials
from linattn.methods.elu import EluAttention, EluConfig

WIDTH, HEADS = 16, 2
EPS = 1e-6


class KernelAttention(nn.Module):
    """elu + 1; ``fault`` is what its code gets wrong, as public packages do."""

    def __init__(self, fault: str = "", causal: bool = False) -> None:
        super().__init__()
        self.fault, self.causal = fault, causal
        self.to_q, self.to_k, self.to_v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.to_out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        query, key, value = (split_heads(f(x), HEADS) for f in (self.to_q, self.to_k, self.to_v))
        query, key = (nn.functional.elu(y.float()) + 1 for y in (query, key))
        value = value.float()
        if mask is not None:
            column = mask[:, None, :, None]
            value = value * column
            if self.fault != "leak":
                key = key * column
        if self.fault == "batch":
            value = value + 0.01 * (value[:1] - value)
        context = key.transpose(-1, -2) @ value
        total = (query * key.sum(-2, keepdim=True)).sum(-1, keepdim=True)
        joined = join_heads((query @ context / (total + EPS)).to(x.dtype))
        found: Tensor = self.dropout(self.to_out(joined))
        return found


KernelAttention.__module__ = "fake_package.attention"
KernelAttention.__qualname__ = "KernelAttention"


class StandIn(nn.Module):
    def __init__(self, original: Any, eps: float = EPS) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = original.to_q, original.to_k, original.to_v
        self.to_out, self.dropout = original.to_out, original.dropout
        self.attention = EluAttention(EluConfig(eps=eps))

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        query, key, value = (split_heads(f(x), HEADS) for f in (self.to_q, self.to_k, self.to_v))
        output: Tensor = self.to_out(join_heads(self.attention(query, key, value, mask)))
        dropped: Tensor = self.dropout(output)
        return dropped


def right(original: Any) -> nn.Module:
    require("causal", original.causal, False)
    return StandIn(original)


def copied(original: Any) -> nn.Module:
    """Right, with a weight of its own, as where shapes differ."""
    made: Any = right(original)
    made.to_q = nn.Linear(WIDTH, WIDTH, bias=False)
    made.to_q.weight = nn.Parameter(
        original.to_q.weight.detach().clone(), requires_grad=original.to_q.weight.requires_grad
    )
    return made  # type: ignore[no-any-return]


def transposed(original: Any) -> nn.Module:
    made: Any = copied(original)
    made.to_q.weight.data = made.to_q.weight.data.T.contiguous()
    return made  # type: ignore[no-any-return]


def other_eps(original: Any) -> nn.Module:
    return StandIn(original, eps=1e-4)


class _Unmasked(StandIn):
    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        return super().forward(x, None)


class _ShorterOutput(StandIn):
    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        return super().forward(x, mask)[:, 1:]


class _NotANumber(StandIn):
    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        return super().forward(x, mask) * torch.nan


WRONG: dict[str, Callable[[Any], nn.Module]] = {
    "a weight transposed": transposed,
    "another eps": other_eps,
    "the mask ignored": _Unmasked,
    "one token too few": _ShorterOutput,
    "NaN": _NotANumber,
}


def table(convert: Callable[[Any], nn.Module] = right) -> dict[str, Peer]:
    peer = Peer(
        package="fake-package",
        layer="fake_package.attention.KernelAttention",
        versions="1.0",
        method="elu",
        convert=convert,
        trials=lambda original: token_trials(WIDTH, hidden="x", mask="mask"),
    )
    return {peer.layer: peer}


def drawn(fault: str = "", causal: bool = False) -> KernelAttention:
    torch.manual_seed(0)
    return KernelAttention(fault, causal)
