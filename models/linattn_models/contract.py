"""What a model record holds: how to build it, its inputs, and what it is good for."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from linattn import LinattnError, StateSpec


class ModelError(LinattnError, ValueError):
    """A model that does not exist, or that cannot be built as asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What the user may choose about a model; None means the model's own default."""

    method: str
    method_options: Mapping[str, Any] = field(default_factory=dict)
    d_model: int | None = None
    heads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Which numbers a floating-point input may hold.

    ``low`` and ``high`` are among them; ``positive`` leaves out 0 and what is below.
    """

    low: float = -math.inf
    high: float = math.inf
    positive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input of an entry module.

    ``axes`` holds symbols (``batch``, ``sequence``) and numbers. ``kind`` says how example values
    are drawn: ``normal`` N(0, 1) times ``scale``, ``mask`` prefix lengths, ``sample`` rows of the
    task, ``tokens`` integers from ``lowest`` on, ``vocabulary`` of them, ``state`` what a run
    before it left. ``dtype`` is that of integers and masks; None means int64 and bool.
    ``samples`` holds real inputs with the same axes, for the family of that name. ``domain`` is of
    ``normal`` inputs: where it has two ends, they are drawn evenly between them. ``padding`` says
    where a mask has its padded tokens, ``empty_rows`` whether a sequence may have no real one.
    """

    name: str
    axes: tuple[str | int, ...]
    kind: Literal["normal", "mask", "sample", "tokens", "state"] = "normal"
    vocabulary: int = 0
    lowest: int = 0
    scale: float = 1.0
    dtype: Literal["float32", "float16", "int64", "int32", "bool"] | None = None
    samples: Tensor | None = None
    padding: Literal["any", "right", "left"] = "any"
    empty_rows: bool = True
    domain: Domain | None = None

    @property
    def values(self) -> tuple[int, int] | None:
        """The lowest and highest token; None for what is none."""
        last = self.lowest + self.vocabulary - 1
        return (self.lowest, last) if self.kind == "tokens" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Held-out data that says whether the exported model still does its job.

    ``inputs`` by name are ``[rows, tokens, ..]``, ``labels`` int64 with the leading axes of the
    output; ``metric`` is one of linattn_runtime_checks.contract.metrics:
    ``top1`` is the share of rows whose largest output is
    the label, ``bits_per_byte`` is -log2 of what the softmax gives the label.
    Artifacts that lack one of the inputs, such as the mask, have no score.
    """

    metric: Literal["top1", "bits_per_byte"]
    inputs: Mapping[str, Tensor]
    labels: Tensor
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """How a model goes on from a state.

    ``states(module)`` says what it carries, nothing where its method is not recurrent;
    ``prefill(module, mask, length)`` and ``step(module)`` wrap it into entries that take the
    model's inputs (a step without the mask), then the states, and return the output, then the
    states.
    """

    states: Callable[[nn.Module], Sequence[StateSpec]]
    prefill: Callable[[nn.Module, bool, int], nn.Module]
    step: Callable[[nn.Module], nn.Module]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model: each model file ends with one of these.

    ``build(options)`` gives the module that owns the parameters; ``entry(module, mask, length)``
    wraps it into the module with one ``forward`` that is exported, taking the inputs of
    ``inputs(module, mask)`` in their order. ``length`` is the only length that the entry accepts,
    0 for any.
    """

    name: str
    title: str
    build: Callable[[ModelOptions], nn.Module]
    entry: Callable[[nn.Module, bool, int], nn.Module]
    inputs: Callable[[nn.Module, bool], tuple[InputSpec, ...]]
    output_axes: Callable[[nn.Module], tuple[str | int, ...]]
    outputs: Callable[[nn.Module], Mapping[str, tuple[str | int, ...]]] | None = None
    """Axes of the outputs by name; None means one, called ``output``."""
    streaming: Streaming | None = None
    """For entries ``prefill`` and ``step``; None where there are none."""
    masks: bool
    """Whether the model can take an attention_mask."""
    masked: bool = False
    """Whether it takes one unless the user says otherwise."""
    fixed_lengths: tuple[int, ...] = (128, 512, 1024)
    dynamic_lengths: tuple[int, int] = (1, 4096)
    max_length: Callable[[nn.Module], int | None]
    """The longest sequence the module can take; None = any."""
    positions: bool = False
    """Whether the model tells tokens apart by their places, beyond what its method does."""
    directions: Callable[[nn.Module], Mapping[str, Mapping[str, Tensor]]] | None = None
    """For the hostile families ``negative-features`` and ``near-zero-denominator``: input name to
    the vector (last axis, float64) that all tokens follow."""
    methods: tuple[str, ...] = ()
    """What it is built with where no method is named; none means linattn.DEFAULT_METHODS."""
    weights: Callable[[str], Path] | None = None
    """Trained weights that ship with the model, by method name."""
    task: Callable[[], Task] | None = None
    labels: tuple[str, ...] = ()
    """What the elements of the output's last axis stand for, in their order."""


def check_length(found: int, length: int) -> None:
    """Raise ValueError if an entry made for one length gets another (scriptable)."""
    if length > 0 and found != length:
        raise ValueError(
            f"this artifact is fixed to sequence length {length}, got {found}; "
            "use the dynamic artifact for other lengths"
        )


def bounded_length(module: nn.Module) -> int | None:
    """The smallest ``max_length`` of the parts of ``module``, None without any."""
    bounds = [getattr(part, "max_length", None) for part in module.modules()]
    return min((bound for bound in bounds if isinstance(bound, int)), default=None)
