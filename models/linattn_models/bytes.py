"""A small trained language model of bytes, for decoding from a state.

    x = embedding[byte];  twice: x += attention(norm(x)), x += mlp(norm(x));
    logits = norm(x) embedding^T

Input: bytes of English text about Python, int64 ``[B, N]``; output: logits of the byte that comes
next, ``[B, N, 256]``. The method must be recurrent. The states of both layers are stacked along
their first axis, so that the model carries as many tensors as one layer does.
Weights: ``weights/bytes/``, trained by ``models/training/bytes.py`` on docstrings of the standard
library, which also states what is held out and how well it is predicted.
"""

from pathlib import Path
from typing import Any, Optional, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from linattn import StateSpec, attention_layer
from linattn.numerics import widen
from linattn_models.contract import InputSpec, Model, ModelError, ModelOptions, Task, check_length
from linattn_models.streaming import STREAMING
from linattn_models.trained import FOLDER, refuse_sizes, trained_methods, weights_of

BYTES = 256
D_MODEL = 96
HEADS = 4
LAYERS = 2
MLP = 3 * D_MODEL


class Block(nn.Module):
    """A pre-norm transformer block that goes on from a state."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(D_MODEL)
        self.attention = attention_layer(D_MODEL, HEADS, method=method)
        self.mlp_norm = nn.LayerNorm(D_MODEL)
        self.mlp = nn.Sequential(nn.Linear(D_MODEL, MLP), nn.GELU(), nn.Linear(MLP, D_MODEL))

    def forward(
        self, hidden: Tensor, mask: Optional[Tensor], states: list[Tensor], one_token: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Return ``[B, N, M]`` of the same, and the layer's states after the last token."""
        attended, after = self.attention.advance(  # type: ignore[operator]
            self.attention_norm(hidden), mask, states, one_token
        )
        hidden = hidden + attended
        return hidden + self.mlp(self.mlp_norm(hidden)), after


class ByteModel(nn.Module):
    """The language model; see the head of this file.

    Args:
        method: a name in :data:`linattn.METHODS` or :data:`linattn.LAYERS`, recurrent.

    Raises:
        ModelError: the method carries no state.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(BYTES, D_MODEL)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.blocks = nn.ModuleList([Block(method) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(D_MODEL)
        self.layer_shapes = [list(spec.shape) for spec in self._layer_specs()]
        if not self.layer_shapes:
            raise ModelError(
                f"bytes needs a method that carries a state, which {method} does not; "
                "use gated_delta, which has trained weights"
            )

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``[B, N, 256]`` of bytes ``[B, N]``, from the start of a text."""
        logits, _ = self.advance(tokens, None, self.start(tokens), False)
        return logits

    def start(self, tokens: Tensor) -> list[Tensor]:
        """States of zeros for ``tokens [B, N]``."""
        wide = widen(self.embed.weight[:1, :1])
        states: list[Tensor] = []
        for shape in self.layer_shapes:
            sizes = [tokens.size(0), len(self.blocks) * shape[0]]
            sizes.extend(shape[1:])
            states.append(wide.new_zeros(sizes))
        return states

    def advance(
        self, tokens: Tensor, mask: Optional[Tensor], states: list[Tensor], one_token: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Go on from a state.

        Args:
            tokens: int64 ``[B, N]``.
            mask: bool ``[B, N]``, True = a real token.
            states: those of :meth:`state_specs`, zeros at the start, float32 or wider.
            one_token: there is exactly one.

        Returns:
            Logits ``[B, N, 256]``, and the states after the last token.

        Raises:
            ValueError: tokens of another shape.
        """
        if tokens.dim() != 2:
            raise ValueError(f"tokens must be [batch, sequence], got {tokens.shape}")
        hidden = self.embed(tokens)
        left: list[list[Tensor]] = []
        for index, block in enumerate(self.blocks):
            mine: list[Tensor] = []
            for place, shape in enumerate(self.layer_shapes):
                part = states[place].narrow(1, index * shape[0], shape[0])
                # A scan carries what is contiguous; contiguous() asks whether the batch is 1.
                mine.append(part.clone(memory_format=torch.contiguous_format))
            hidden, after = block(hidden, mask, mine, one_token)
            left.append(after)
        stacked: list[Tensor] = []
        for place in range(len(self.layer_shapes)):
            parts: list[Tensor] = []
            for after in left:
                parts.append(after[place])
            stacked.append(torch.cat(parts, dim=1))
        return nn.functional.linear(self.norm(hidden), self.embed.weight), stacked

    @torch.jit.unused
    def state_specs(self) -> list[StateSpec]:
        """What :meth:`advance` takes and returns."""
        return [
            StateSpec(
                name=spec.name,
                shape=(LAYERS * spec.shape[0], *spec.shape[1:]),
                layout=spec.layout,
            )
            for spec in self._layer_specs()
        ]

    @torch.jit.unused
    def _layer_specs(self) -> list[StateSpec]:
        """The states of one layer."""
        found: list[StateSpec] = cast(Any, self.blocks[0]).attention.state_specs()
        return found


class BytesEntry(nn.Module):
    """``forward(tokens [B, N])``."""

    def __init__(self, model: nn.Module, length: int) -> None:
        super().__init__()
        self.model = model
        self.length = length

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``[B, N, 256]``."""
        check_length(tokens.size(1), self.length)
        output: Tensor = self.model(tokens)
        return output


def _build(options: ModelOptions) -> nn.Module:
    refuse_sizes("bytes", options, D_MODEL, HEADS)
    return ByteModel(options.method)


def _entry(module: nn.Module, mask: bool, length: int) -> nn.Module:
    return BytesEntry(module, length)


def _inputs(module: nn.Module, mask: bool) -> tuple[InputSpec, ...]:
    axes = ("batch", "sequence")
    return (InputSpec(name="tokens", axes=axes, kind="tokens", vocabulary=BYTES),)


def _output_axes(module: nn.Module) -> tuple[str | int, ...]:
    return ("batch", "sequence", BYTES)


def weights_path(method: str) -> Path:
    """The trained weights of ``method``.

    Raises:
        ModelError: none ship for it.
    """
    return weights_of("bytes", method)


def task() -> Task:
    """Windows of the held-out text; each byte is told from those before it in its window."""
    windows = load_file(FOLDER / "bytes" / "held_out.safetensors")["windows"].long()
    return Task(
        metric="bits_per_byte",
        inputs={"tokens": windows[:, :-1].contiguous()},
        labels=windows[:, 1:].contiguous(),
        description="docstrings of Python modules not used in training, windows of 128 bytes",
    )


MODEL = Model(
    name="bytes",
    title="a trained language model of bytes: tokens [batch, sequence]",
    build=_build,
    entry=_entry,
    inputs=_inputs,
    output_axes=_output_axes,
    streaming=STREAMING,
    masks=False,
    fixed_lengths=(128,),
    dynamic_lengths=(1, 1024),
    max_length=lambda module: None,
    methods=trained_methods("bytes"),
    weights=weights_path,
    task=task,
)
