"""``timm``: the attention of its EfficientViT (MIT), on images."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial, Unsupported
from linattn.methods.relu import ReluAttention, ReluConfig

SIZES = ((1, 1), (4, 4), (3, 7), (14, 14))


class LiteMlaStandIn(nn.Module):
    """``LiteMLA``: its convolutions around our method; pixels are the tokens."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.dim = int(original.dim)
        self.qkv, self.aggreg, self.proj = original.qkv, original.aggreg, original.proj
        self.attention = ReluAttention(ReluConfig(eps=original.eps))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, C', H, W]`` of ``x [B, C, H, W]``."""
        parts = [self.qkv(x)]
        for scale in self.aggreg:
            parts.append(scale(parts[0]))
        pixels = torch.cat(parts, dim=1).flatten(2)
        heads = torch.unflatten(pixels, 1, [pixels.size(1) // (3 * self.dim), 3 * self.dim])
        query, key, value = torch.split(heads.transpose(-1, -2), [self.dim] * 3, dim=-1)
        output = self.attention(query, key, value).transpose(-1, -2)
        joined: Tensor = self.proj(output.flatten(1, 2).unflatten(2, [x.size(2), x.size(3)]))
        return joined


def convert(original: Any) -> nn.Module:
    """The stand-in, or Unsupported."""
    if type(original.kernel_func) is not nn.ReLU:
        raise Unsupported(
            f"kernel_func={type(original.kernel_func).__name__} is not supported; supported: ReLU"
        )
    return LiteMlaStandIn(original)


def trials(original: Any) -> Sequence[Trial]:
    """Images of several sizes."""
    channels = original.qkv.conv.in_channels
    found = []
    for height, width in SIZES:
        generator = torch.Generator().manual_seed(height * width)
        x = torch.randn(2, channels, height, width, generator=generator).double()
        trial = Trial(
            name=f"{height} x {width} pixels", inputs={"x": x}, batched=("x",), channels=1
        )
        found.append(trial)
    return found


PEERS = (
    Peer(
        package="timm",
        layer="timm.models.efficientvit_mit.LiteMLA",
        versions="1.0.31",
        method="relu",
        convert=convert,
        trials=trials,
    ),
)
