"""Modules as other people bring them."""

import functools
import io
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

WIDTH = 8


class Mixes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def mixed(self, x: Tensor) -> Tensor:
        found: Tensor = self.mix(x)
        return found


class Plain(Mixes):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.mix(x))


# What is written into.


class Relu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.relu_()
        return x * 2


class OnlyEager(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            x.relu_()
        return x * 2


class OnlyCaptured(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            x.relu_()
        return x * 2


class Slice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x[:, 0] = 0
        return x + 1


class Transposed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.mT.add_(1)
        return x.exp()


class Out(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch.mul(x, 3, out=x)
        return x - 1


class Indexed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.index_put_((torch.tensor([0]),), torch.tensor(2.0))
        return x * 2


class Detached(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.detach().mul_(0.5)
        return x * 2


class Foreach(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._foreach_mul_([x], 0.5)
        return x * 2


class OnlyInEval(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            x.clamp_(min=0)
        return x * 2


class ThroughNumpy(nn.Module):
    """No operator of torch sees it."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            x.numpy()[...] = 1
        return x * 2


class OnlyLong(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) > 30:
            x.relu_()
        return x * 2


class Mask(nn.Module):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        attention_mask.logical_not_()
        return x.masked_fill(attention_mask.unsqueeze(-1), 0.0)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens.clamp_(max=4)
        found: Tensor = self.embed(tokens)
        return found


class Batch(nn.Module):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        batch["x"].sub_(1)
        return batch["x"] * batch["y"]


# What is kept from run to run.


class Cache(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.cache: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.cache is None else torch.cat([self.cache, x], 1)
        self.cache = kept
        return torch.tanh(self.mix(kept))


class ListCache(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.past: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.past.append(x.mean())
        return self.mixed(x) * len(self.past)


class Store:
    def __init__(self) -> None:
        self.runs = 0


class ObjectState(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()

    def forward(self, x: Tensor) -> Tensor:
        self.store.runs += 1
        return self.mixed(x) * self.store.runs


class TensorState(Plain):
    """A tensor that is no buffer, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x.sum())
        return self.mixed(x) + self.total


class BufferState(Plain):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x.sum())
        return self.mixed(x) + self.total


class GrowingBuffer(Plain):
    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", torch.zeros(1, 1, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.past = torch.cat([self.past, x[:1]], 1)
        return self.mixed(x) + self.past.mean()


class Rotary(Plain):
    """A table that grows when it must, and changes no number."""

    def __init__(self) -> None:
        super().__init__()
        self.longest, self.table = 0, torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        size = x.size(1)
        if size > self.longest:
            self.table = torch.cos(torch.arange(size, dtype=x.dtype)).unsqueeze(-1)
            self.longest = size
        return self.mixed(x) * self.table[:size]


class Remembers(Plain):
    """As many do, for a look at it later."""

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.mixed(x)
        return self.last * 2


class Recorder:
    def __init__(self) -> None:
        self.features: deque[Tensor] = deque(maxlen=100)

    def hook(self, part: nn.Module, inputs: Any, output: Tensor) -> None:
        self.features.append(output)


COLLECTED: dict[str, list[Tensor]] = {"features": []}


def collects(where: str) -> Any:
    """A module with a hook that collects what passes, in one of the usual places."""
    net: Any = Plain()
    seen: list[Tensor] = []
    recorder = Recorder()
    if where == "attribute":
        net.seen = seen
        hook: Any = lambda part, inputs, output: net.seen.append(output)  # noqa: E731
    elif where == "closure":
        hook = lambda part, inputs, output: seen.append(output)  # noqa: E731
    elif where == "object":
        hook = recorder.hook
    elif where == "partial":
        hook = functools.partial(lambda kept, part, inputs, output: kept.append(output), seen)
    else:
        hook = _into_global
    net.mix.register_forward_hook(hook)
    net.count = lambda: len(seen) + len(recorder.features) + len(COLLECTED["features"])
    return net


def _into_global(part: nn.Module, inputs: Any, output: Tensor) -> None:
    COLLECTED["features"].append(output)


# What cannot be copied.


def holds(thing: str) -> Any:
    """A module with an attribute that copy.deepcopy refuses."""
    net: Any = Plain()
    made: dict[str, Callable[[], Any]] = {
        "lock": threading.Lock,
        "file": lambda: sys.__stderr__,
        "generator": lambda: (x for x in range(3)),
        "condition": threading.Condition,
    }
    net.thing = made[thing]()
    return net


class ExtraState(Plain):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


# How it was made.


class Dropout(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.drop(self.mix(x))
        return found


class AlwaysDropout(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)


class Holder(nn.Module):
    """Holds a part that was made in another way."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.part(x) * 2
        return found


class OptionalMask(Mixes):
    def forward(self, x, attention_mask=None):  # type: ignore[no-untyped-def]
        x = self.mixed(x)
        return x if attention_mask is None else x * attention_mask.unsqueeze(-1)


class AnnotatedMask(Mixes):
    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.mixed(x)
        return x if attention_mask is None else x * attention_mask.unsqueeze(-1)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.LazyLinear(WIDTH)
        self.norm = nn.LazyBatchNorm1d()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.mix(x).mT))


def lazy_part() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(WIDTH))


class OnMeta(Plain):
    """Its weights come from a file."""

    scale: Tensor

    def __init__(self, *, kept: bool = True) -> None:
        with torch.device("meta"):
            super().__init__()
            self.register_buffer("scale", torch.ones(WIDTH), persistent=kept)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.mix(x)) * self.scale


def lost_buffer() -> OnMeta:
    return OnMeta(kept=False)


class Levels(Mixes):
    def forward(self, levels: list[Tensor]) -> Tensor:
        return self.mixed(levels[0]) + levels[1]


class TupleOfLevels(Mixes):
    def forward(self, levels: tuple[Tensor, Tensor]) -> Tensor:
        high, low = levels
        return self.mixed(high) + low


class NamedLevels(Mixes):
    """A dictionary whose keys are digits, as feature pyramids have it."""

    def forward(self, levels: dict[str, Tensor]) -> Tensor:
        return self.mixed(levels["0"]) + levels["1"]


class DictsOfLevels(Mixes):
    def forward(self, levels: list[dict[str, Tensor]]) -> Tensor:
        return self.mixed(levels[0]["x"]) + levels[1]["x"]


def scripted(net: nn.Module) -> Any:
    return torch.jit.script(net)


def traced(net: nn.Module) -> Any:
    trace: Any = torch.jit.trace
    return trace(net, torch.randn(2, 5, WIDTH), check_trace=False)


def loaded(net: nn.Module) -> Any:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(net), file)
    file.seek(0)
    load: Any = torch.jit.load
    return load(file)


def captured(net: nn.Module, *, varies: bool = True) -> nn.Module:
    """What torch.export gives back."""
    sizes = {0: Dim("batch", min=1, max=64), 1: Dim("sequence", min=1, max=4096)}
    program = torch.export.export(
        net, (torch.randn(4, 16, WIDTH),), dynamic_shapes=(sizes,) if varies else None
    )
    module: nn.Module = program.module()
    return module


def quantised(net: nn.Module) -> Any:
    quantise: Any = torch.ao.quantization.quantize_dynamic
    return quantise(net, {nn.Linear})


def with_partial_forward(net: nn.Module) -> nn.Module:
    net.forward = functools.partial(net.forward, attention_mask=None)
    return net


def with_own_forward(net: Plain) -> nn.Module:
    net.forward = lambda x: net.mix(x) * 2  # type: ignore[method-assign]
    return net


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).mT


def parametrized(net: Plain) -> nn.Module:
    nn.utils.parametrize.register_parametrization(net.mix, "weight", Symmetric())
    return net


def compiled_inside(net: Any) -> Any:
    net.mix = torch.compile(net.mix)
    return net


def compiled_in_place(net: nn.Module) -> nn.Module:
    net.compile()
    return net


MADE: dict[str, Callable[[], nn.Module]] = {
    "compiled": lambda: torch.compile(Dropout()),  # type: ignore[dict-item, return-value]
    "compiled inside": lambda: compiled_inside(Plain()),
    "compiled in place": lambda: compiled_in_place(Plain()),
    "in parallel": lambda: nn.DataParallel(Plain()),
    "compiled in parallel": lambda: torch.compile(nn.DataParallel(Plain())),  # type: ignore[dict-item, return-value]
    "traced": lambda: traced(Plain().eval()),
    "traced inside": lambda: Holder(traced(Plain().eval())),
    "captured": lambda: captured(Plain()),
    "captured inside": lambda: Holder(captured(Plain())),
    "symbolically traced": lambda: torch.fx.symbolic_trace(Plain()),
    "partial forward": lambda: with_partial_forward(OptionalMask()),
    "own forward": lambda: with_own_forward(Plain()),
    "weight norm of old": lambda: _weight_norm(Plain()),
    "parametrized": lambda: parametrized(Plain()),
}


def _weight_norm(net: Plain) -> nn.Module:
    net.mix = nn.utils.weight_norm(net.mix)
    return net
