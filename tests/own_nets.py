"""Modules as people bring them, and as they should not."""

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linattn import MultiHeadAttention, attention_layer

WIDTH = 16


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, 2, method="elu")
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm(x), mask))
        mixed: Tensor = self.mlp(x)
        return x + mixed


class Net(nn.Module):
    """A classifier of sequences: tokens and a mask in, a dictionary out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, attention_mask)
        kept = attention_mask.unsqueeze(-1).to(x.dtype)
        pooled = (x * kept).sum(1) / kept.sum(1).clamp(min=1)
        return {"logits": self.head(pooled), "hidden": x}


@dataclasses.dataclass
class Pair:
    left: Tensor
    right: Tensor


class Sums(NamedTuple):
    scaled: Tensor
    mean: Tensor


class Structured(nn.Module):
    """A dataclass and a keyword in, a named tuple out; not for TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((8,), 1.5))

    def forward(self, pair: Pair, *, scale: Tensor) -> Sums:
        return Sums(pair.left * self.gain * scale, pair.right.to(torch.float32).mean(1))


class SequenceFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.mix(x)
        return torch.tanh(mixed).cumsum(0)


class SinglePrecision(nn.Module):
    """Its code says float32, whatever its weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        centred = x.float() - x.to(torch.float32).mean(-1, keepdim=True)
        mixed: Tensor = self.mix(centred)
        return mixed


class FillsZeros(nn.Module):
    """Writes what it computes into a tensor that it has made, in the dtype that torch chooses."""

    def __init__(self, casts: bool) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.casts = casts

    def forward(self, x: Tensor) -> Tensor:
        found = torch.zeros(x.shape)
        found[:, :] = self.mix(x.float() if self.casts else x)
        return found * 2


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, stride=2)

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.convolution(image)
        return found.mean((2, 3))


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class CumulativeProduct(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumprod(torch.sigmoid(x), 1)


@torch.library.custom_op("own_nets::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """Stands for a kernel of somebody's own."""
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class CustomOperator(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = twice(x)
        return found


class Segments(nn.Module):
    """Sums of four tokens, of which there may be one: a size that capture takes for more."""

    def forward(self, x: Tensor) -> Tensor:
        segment = torch.arange(x.size(1)) // 4
        sums = torch.zeros(x.size(0), (x.size(1) + 3) // 4, x.size(2), dtype=x.dtype)
        return sums.index_add(1, segment, x).amax(1)


class MaskOnValuesOnly(nn.Module):
    """Linear attention whose padding still enters the normaliser."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        phi = F.elu(x) + 1
        value = x * mask.unsqueeze(-1)
        weight = (phi * phi.sum(1, keepdim=True)).sum(-1, keepdim=True)
        return (phi @ (phi.transpose(1, 2) @ value)) / weight


class Pooled(nn.Module):
    """A mean and running sums over tokens: added up in another way by every runtime."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mean(1), x.cumsum(1)


class OverTokens(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for index in range(x.size(1)):
            rows.append(x[:, index] * 2)
        return torch.stack(rows, 1)


class OverBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * 2 for row in x])


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x


class FrozenLength(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(24, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.places


class FewPlaces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(40, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.places[torch.arange(x.size(1))]


class AlwaysDropout(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(1))
        self.runs: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x * 2


class Labels(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.sum(-1).argmax(-1)


class EverySecond(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, ::2]


class Wraps(nn.Module):
    """What it returns holds something that is no tensor."""

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return x * 2, "twice"


class Future(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.mean(1, keepdim=True)


def raises() -> nn.Module:
    raise ValueError("no checkpoint here")


def no_module() -> int:
    return 3


def needs_an_argument(width: int) -> nn.Module:
    return nn.Linear(width, width)


ready = Plain()
number = 3


class Decoder(nn.Module):
    """A causal layer of linattn inside a module of one's own."""

    def __init__(self, method: str = "gla") -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.layer = attention_layer(WIDTH, 2, method=method)
        self.head = nn.Linear(WIDTH, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        logits: Tensor = self.head(x + self.layer(x))
        return logits


class TorchEncoder(nn.Module):
    """PyTorch's own encoder: quadratic, and with a fast path of its own in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.encoder(x)
        return found
