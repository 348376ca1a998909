"""A small trained encoder that says in which language a text is, from its bytes.

    x = gelu(convolution of 5 bytes of embedding[byte]);
    twice: x += attention(norm(x)), x += mlp(norm(x));
    logits = head(mean over real tokens of norm(x))

Input: the UTF-8 bytes of a text, int64 ``[B, N]``, and ``attention_mask``, bool ``[B, N]``, True =
a byte of the text; output: logits of the languages in :data:`LANGUAGES`, ``[B, 41]``, zeros where
all is masked. Padding may stand on either side and hold any number. The methods tell no places
apart, so it is the convolution that sees letters in their order.
Data: the translations of the messages of Django and Wagtail. Weights: one file per method in
``weights/langid/``, made by ``models/training/langid.py``, which also states what is held out and
how much of it is told right. All of it is what interfaces say: short sentences about other things
are told less well, above all between neighbours such as nb and da, cs and sk, es, pt and it.
"""

from pathlib import Path
from typing import Optional

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from linattn import MultiHeadAttention
from linattn.numerics import token_sum, zero_masked
from linattn_models.contract import InputSpec, Model, ModelOptions, Task, check_length
from linattn_models.trained import FOLDER, refuse_sizes, trained_methods, weights_of

LANGUAGES = (
    "ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr", "he", "hi", "hr",
    "hu", "hy", "id", "is", "it", "ja", "ka", "ko", "lt", "lv", "nb", "nl", "pl", "pt", "ro", "ru",
    "sk", "sl", "sr", "sv", "th", "tr", "uk", "vi", "zh",
)  # fmt: skip
"""Codes of the languages, BCP 47, in the order of the logits."""
BYTES = 256
D_MODEL = 80
HEADS = 4
LAYERS = 2
WINDOW = 5
TEXT = 128
"""Bytes of the longest held-out text, and length of the fixed artifact."""


class Block(nn.Module):
    """A pre-norm transformer block, ``[B, N, M]`` in and out."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(D_MODEL)
        self.attention = MultiHeadAttention(D_MODEL, HEADS, method=method)
        self.mlp_norm = nn.LayerNorm(D_MODEL)
        self.mlp = nn.Sequential(
            nn.Linear(D_MODEL, 2 * D_MODEL), nn.GELU(), nn.Linear(2 * D_MODEL, D_MODEL)
        )

    def forward(self, hidden: Tensor, mask: Optional[Tensor]) -> Tensor:
        """Return ``[B, N, M]``."""
        hidden = hidden + self.attention(self.attention_norm(hidden), mask)
        output: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return output


class LanguageModel(nn.Module):
    """The encoder; see the head of this file.

    Args:
        method: a name in :data:`linattn.METHODS`.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(BYTES, D_MODEL)
        self.convolution = nn.Conv1d(D_MODEL, D_MODEL, WINDOW, padding=WINDOW // 2)
        self.blocks = nn.ModuleList([Block(method) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(D_MODEL)
        self.head = nn.Linear(D_MODEL, len(LANGUAGES))

    def forward(self, tokens: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """Logits ``[B, languages]`` of bytes ``[B, N]``.

        Args:
            tokens: int64, from 0 to 255 where the mask is True.
            mask: bool ``[B, N]``, True = a real token; None for no padding.

        Raises:
            ValueError: tokens of another shape, or a mask that is not that of the tokens.
        """
        if tokens.dim() != 2:
            raise ValueError(f"tokens must be [batch, sequence], got {tokens.shape}")
        if mask is not None and mask.shape != tokens.shape:
            raise ValueError(f"mask must have shape {tokens.shape} of tokens, got {mask.shape}")
        column: Optional[Tensor] = None
        if mask is not None:
            # Whatever number padding is, it must not look up a row that is not there.
            tokens = tokens.masked_fill(torch.logical_not(mask), 0)
            column = mask.unsqueeze(-1)
        # Zeros, as the convolution sees them beyond both ends of a text.
        hidden = zero_masked(self.embed(tokens), column)
        hidden = nn.functional.gelu(self.convolution(hidden.transpose(1, 2))).transpose(1, 2)
        for block in self.blocks:
            hidden = block(hidden, mask)
        total = token_sum(zero_masked(self.norm(hidden), column)).squeeze(1)
        if mask is None:
            output: Tensor = self.head(total / tokens.size(1))
            return output
        count = mask.to(total.dtype).sum(dim=1, keepdim=True)
        logits: Tensor = self.head(total / torch.clamp(count, min=1.0))
        return logits.masked_fill(count == 0, 0.0)


class LangidEntry(nn.Module):
    """``forward(tokens [B, N])``."""

    def __init__(self, model: nn.Module, length: int) -> None:
        super().__init__()
        self.model = model
        self.length = length

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``[B, languages]``."""
        check_length(tokens.size(1), self.length)
        output: Tensor = self.model(tokens)
        return output


class MaskedLangidEntry(nn.Module):
    """``forward(tokens [B, N], attention_mask [B, N])``, True = a real token."""

    def __init__(self, model: nn.Module, length: int) -> None:
        super().__init__()
        self.model = model
        self.length = length

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits ``[B, languages]``; zero for a text whose tokens are all masked."""
        check_length(tokens.size(1), self.length)
        output: Tensor = self.model(tokens, attention_mask)
        return output


def _build(options: ModelOptions) -> nn.Module:
    refuse_sizes("langid", options, D_MODEL, HEADS)
    return LanguageModel(options.method)


def _entry(module: nn.Module, mask: bool, length: int) -> nn.Module:
    return (MaskedLangidEntry if mask else LangidEntry)(module, length)


def _inputs(module: nn.Module, mask: bool) -> tuple[InputSpec, ...]:
    axes = ("batch", "sequence")
    tokens = (InputSpec(name="tokens", axes=axes, kind="tokens", vocabulary=BYTES),)
    masks = (InputSpec(name="attention_mask", axes=axes, kind="mask"),)
    return tokens + (masks if mask else ())


def _output_axes(module: nn.Module) -> tuple[str | int, ...]:
    return ("batch", len(LANGUAGES))


def weights_path(method: str) -> Path:
    """The trained weights of ``method``.

    Raises:
        ModelError: none ship for it.
    """
    return weights_of("langid", method)


def task() -> Task:
    """The held-out texts, padded on the right, and the places of their languages."""
    held_out = load_file(FOLDER / "langid" / "held_out.safetensors")
    lengths = held_out["lengths"].long()
    mask = torch.arange(TEXT) < lengths[:, None]
    tokens = torch.zeros(mask.shape, dtype=torch.int64)
    tokens[mask] = held_out["text"].long()
    return Task(
        metric="top1",
        inputs={"tokens": tokens, "attention_mask": mask},
        labels=held_out["labels"].long(),
        description="translations of messages not used in training, 16 to 128 bytes",
    )


MODEL = Model(
    name="langid",
    title="a trained encoder that tells 41 languages by bytes: tokens [batch, sequence]",
    build=_build,
    entry=_entry,
    inputs=_inputs,
    output_axes=_output_axes,
    masks=True,
    masked=True,
    positions=True,
    fixed_lengths=(TEXT,),
    dynamic_lengths=(1, 512),
    max_length=lambda module: None,
    methods=trained_methods("langid"),
    weights=weights_path,
    task=task,
    labels=LANGUAGES,
)
