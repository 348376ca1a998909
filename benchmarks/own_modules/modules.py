"""Right modules of one's own, as people write them, with their SPECs: nothing may be accused."""

# What PyTorch's own modules return has no type of its own.
# mypy: disable-error-code="no-any-return, union-attr, operator"
# ruff: noqa: D102

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """nn.MultiheadAttention without a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class MaskedAttention(nn.Module):
    """nn.MultiheadAttention with key_padding_mask; an empty row sees everything, and gives zero."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        keep = attention_mask.unsqueeze(-1)
        inner = torch.where(keep, x, torch.zeros_like(x))
        hidden = ~attention_mask & attention_mask.any(1, keepdim=True)
        out = self.attention(inner, inner, inner, key_padding_mask=hidden, need_weights=False)[0]
        return torch.where(keep, out, torch.zeros_like(out))


class MaskedSoftmax(nn.Module):
    """Softmax attention by hand, as in many code bases: -1e9 where there is no token."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.mT / 4.0).masked_fill(~attention_mask.unsqueeze(1), -1e9)
        return scores.softmax(-1) @ (v * attention_mask.unsqueeze(-1))


class BatchNormNet(nn.Module):
    """Convolutions with BatchNorm over an image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(8, 4)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0.0, 0.3)
                part.running_var.uniform_(0.3, 2.0)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.body(image).mean((2, 3)))


class Gru(nn.Module):
    """A GRU over the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 12, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0]


class BiLstm(nn.Module):
    """A bidirectional LSTM over the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class CeilPooling(nn.Module):
    """Halved twice with ceil_mode, then a mean over what is left."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(8, 12, 3, padding=1), nn.Conv1d(12, 12, 3, padding=1)
        self.pool = nn.MaxPool1d(2, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        low = self.pool(F.relu(self.one(x.mT)))
        return self.pool(F.relu(self.two(low))).mean(-1)


class UNetBlock(nn.Module):
    """Pads to a multiple of four, goes down and up with skips, and crops."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(8, 8, 3, padding=1)
        self.down = nn.Conv1d(8, 16, 4, stride=2, padding=1)
        self.low = nn.Conv1d(16, 16, 4, stride=2, padding=1)
        self.rise = nn.ConvTranspose1d(16, 16, 2, stride=2)
        self.up = nn.ConvTranspose1d(32, 8, 2, stride=2)
        self.leave = nn.Conv1d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        top = F.gelu(self.enter(F.pad(x.mT, (0, -n % 4))))
        mid = F.gelu(self.down(top))
        low = self.rise(F.gelu(self.low(mid)))
        back = self.up(torch.cat([mid, low], dim=1))
        return self.leave(torch.cat([top, back], dim=1))[..., :n].mT


class Mixer(nn.Module):
    """LayerNorm, a perceptron over 16 tokens, LayerNorm, a perceptron over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.over_tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.over_channels = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_tokens(self.first(x).mT).mT
        return x + self.over_channels(self.second(x))


class EluAttention(nn.Module):
    """Linear attention with ELU features; keys are masked after the map."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        keep = attention_mask.unsqueeze(-1)
        inner = torch.where(keep, x, torch.zeros_like(x))
        q, k, v = self.qkv(inner).chunk(3, dim=-1)
        q, k = F.elu(q) + 1.0, (F.elu(k) + 1.0) * keep
        total = (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True)
        return (q @ (k.mT @ (v * keep))) / (total + 1e-6)


class Rotary(nn.Module):
    """Attention with rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("speed", 1.0 / 10000 ** (torch.arange(8) / 8))

    def turned(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * self.speed.to(x.dtype)
        one, other = x.chunk(2, dim=-1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([one * cos - other * sin, one * sin + other * cos], dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out(torch.softmax(self.turned(q) @ self.turned(k).mT / 4.0, dim=-1) @ v)


class DepthwiseClassifier(nn.Module):
    """Depthwise convolutions and a mean over real tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 5, padding=2, groups=16)
        self.mix, self.head = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        keep = attention_mask.unsqueeze(-1)
        inner = torch.where(keep, x, torch.zeros_like(x))
        hidden = F.silu(self.mix(self.conv(inner.mT).mT)) * keep
        return self.head(hidden.sum(1) / keep.sum(1).clamp(min=1))


def _spec(width: int, mask: bool = False, sequence: str = "1:48") -> dict[str, Any]:
    inputs: dict[str, Any] = {"x": {"shape": ["batch", "sequence", width]}}
    if mask:
        inputs["attention_mask"] = {"kind": "mask", "shape": ["batch", "sequence"]}
    return {"symbols": {"batch": "1:4", "sequence": sequence}, "inputs": inputs}


_IMAGE = {"symbols": {"batch": "1:4"}, "inputs": {"image": {"shape": ["batch", 3, 12, 12]}}}
_TOKENS = {"symbols": {"batch": "1:4"}, "inputs": {"x": {"shape": ["batch", 16, 8]}}}

MODULES: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "attention": (Attention, _spec(16)),
    "attention-masked": (MaskedAttention, _spec(16, mask=True)),
    "softmax-masked": (MaskedSoftmax, _spec(16, mask=True)),
    "batch-norm": (BatchNormNet, _IMAGE),
    "gru": (Gru, _spec(8)),
    "lstm-both-ways": (BiLstm, _spec(8)),
    "ceil-pooling": (CeilPooling, _spec(8)),
    "u-net": (UNetBlock, _spec(8)),
    "mixer": (Mixer, _TOKENS),
    "elu-masked": (EluAttention, _spec(16, mask=True)),
    "rotary": (Rotary, _spec(16)),
    "depthwise-masked": (DepthwiseClassifier, _spec(16, mask=True)),
}
