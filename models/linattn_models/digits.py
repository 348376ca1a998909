"""A small trained encoder that reads a handwritten digit pixel by pixel.

    tokens = pixels W + position;  twice: x += attention(norm(x)), x += mlp(norm(x));
    logits = head(mean over tokens of norm(x))

Input: the 64 pixels of an 8 x 8 image in row order, in [0, 1], ``[B, 64]``; output: logits of the
ten digits, ``[B, 10]``. Shorter sequences are the first pixels of an image.
Data: scikit-learn's copy of the UCI "Optical Recognition of Handwritten Digits" test set (Alpaydin
and Kaynak 1998), 1797 images. Weights: one file per method in ``weights/``, made by
``models/training/digits.py``, which also states the held-out split.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from linattn import MultiHeadAttention
from linattn_models.contract import (
    InputSpec,
    Model,
    ModelOptions,
    Task,
    check_length,
)
from linattn_models.trained import FOLDER, refuse_sizes, weights_of

PIXELS = 64
CLASSES = 10
D_MODEL = 48
HEADS = 4
LAYERS = 2
_METHOD_OPTIONS: dict[str, dict[str, Any]] = {"linformer": {"rank": 16, "max_length": PIXELS}}


class Block(nn.Module):
    """A pre-norm transformer block, ``[B, N, M]`` in and out."""

    def __init__(self, method: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(D_MODEL)
        self.attention = MultiHeadAttention(D_MODEL, HEADS, method=method, **options)
        self.mlp_norm = nn.LayerNorm(D_MODEL)
        self.mlp = nn.Sequential(
            nn.Linear(D_MODEL, 2 * D_MODEL), nn.GELU(), nn.Linear(2 * D_MODEL, D_MODEL)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Return ``[B, N, M]``."""
        hidden = hidden + self.attention(self.attention_norm(hidden))
        output: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return output


class Digits(nn.Module):
    """The encoder; see the head of this file.

    Args:
        method: a name in :data:`linattn.METHODS`.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        self.max_length = PIXELS
        self.embed = nn.Linear(1, D_MODEL)
        self.position = nn.Parameter(torch.randn(PIXELS, D_MODEL) * 0.5)
        options = _METHOD_OPTIONS.get(method, {})
        self.blocks = nn.ModuleList([Block(method, options) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(D_MODEL)
        self.head = nn.Linear(D_MODEL, CLASSES)

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits ``[B, 10]`` of pixels ``[B, N]``, N up to 64.

        Raises:
            ValueError: more than 64 pixels.
        """
        length = pixels.size(1)
        if length > self.max_length:
            raise ValueError(f"digits takes at most 64 pixels, got {length}")
        hidden = self.embed(pixels.unsqueeze(-1)) + self.position[:length]
        for block in self.blocks:
            hidden = block(hidden)
        output: Tensor = self.head(self.norm(hidden).mean(dim=1))
        return output


class DigitsEntry(nn.Module):
    """``forward(pixels [B, N])``."""

    def __init__(self, digits: nn.Module, length: int) -> None:
        super().__init__()
        self.digits = digits
        self.length = length

    def forward(self, pixels: Tensor) -> Tensor:
        """Return logits ``[B, 10]``."""
        check_length(pixels.size(1), self.length)
        output: Tensor = self.digits(pixels)
        return output


def _build(options: ModelOptions) -> nn.Module:
    refuse_sizes("digits", options, D_MODEL, HEADS)
    return Digits(options.method)


def _entry(module: nn.Module, mask: bool, length: int) -> nn.Module:
    return DigitsEntry(module, length)


def _inputs(module: nn.Module, mask: bool) -> tuple[InputSpec, ...]:
    return (InputSpec(name="pixels", axes=("batch", "sequence"), kind="sample"),)


def _output_axes(module: nn.Module) -> tuple[str | int, ...]:
    return ("batch", CLASSES)


def weights_path(method: str) -> Path:
    """The trained weights of ``method``.

    Raises:
        ModelError: none ship for it.
    """
    return weights_of("digits", method)


def task() -> Task:
    """The held-out images and their labels."""
    held_out = load_file(FOLDER / "digits" / "held_out.safetensors")
    return Task(
        metric="top1",
        inputs={"pixels": held_out["pixels"].float() / 16},
        labels=held_out["labels"].long(),
        description="scikit-learn digits, images not used in training",
    )


MODEL = Model(
    name="digits",
    title="a trained encoder of handwritten digits: pixels [batch, 64]",
    build=_build,
    entry=_entry,
    inputs=_inputs,
    output_axes=_output_axes,
    masks=False,
    positions=True,
    fixed_lengths=(PIXELS,),
    dynamic_lengths=(1, PIXELS),
    max_length=lambda module: PIXELS,
    weights=weights_path,
    task=task,
    labels=tuple(map(str, range(CLASSES))),
)
