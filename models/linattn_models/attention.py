"""The bare method: query, key and value in, output out, as in the papers.

output = Method(query, key, value)      all [B, H, N, D]
"""

import torch
from torch import Tensor, nn

from linattn import LAYERS, method
from linattn_models.contract import (
    InputSpec,
    Model,
    ModelError,
    ModelOptions,
    bounded_length,
    check_length,
)
from linattn_models.sizes import head_sizes


class Attention(nn.Module):
    """A method with the sizes its example inputs need.

    Args:
        options: method, method options, d_model (heads x head_dim) and heads.
    """

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self.heads, self.head_dim = head_sizes(options)
        if options.method in LAYERS:
            raise ModelError(
                f"method {options.method} makes its gates of hidden states, so it has no form of "
                "query, key and value alone; use `models=['layer']`"
            )
        record = method(options.method)
        self.attention = record.module(
            record.sized(options.method_options, heads=self.heads, head_dim=self.head_dim)
        )


class AttentionEntry(nn.Module):
    """``forward(query, key, value)``, all ``[B, H, N, D]``."""

    def __init__(self, attention: nn.Module, length: int) -> None:
        super().__init__()
        self.attention = attention
        self.length = length

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return ``[B, H, N, D]``."""
        check_length(query.size(2), self.length)
        check_length(key.size(2), self.length)
        output: Tensor = self.attention(query, key, value)
        return output


class MaskedAttentionEntry(nn.Module):
    """``forward(query, key, value, attention_mask)``, the mask bool ``[B, N]``."""

    def __init__(self, attention: nn.Module, length: int) -> None:
        super().__init__()
        self.attention = attention
        self.length = length

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor) -> Tensor:
        """Return ``[B, H, N, D]``."""
        check_length(query.size(2), self.length)
        check_length(key.size(2), self.length)
        output: Tensor = self.attention(query, key, value, attention_mask)
        return output


def _entry(module: nn.Module, mask: bool, length: int) -> nn.Module:
    assert isinstance(module, Attention)
    return (MaskedAttentionEntry if mask else AttentionEntry)(module.attention, length)


def _inputs(module: nn.Module, mask: bool) -> tuple[InputSpec, ...]:
    axes = _output_axes(module)
    names = ("query", "key", "value")
    masks = (InputSpec(name="attention_mask", axes=("batch", "sequence"), kind="mask"),)
    return tuple(InputSpec(name=name, axes=axes) for name in names) + (masks if mask else ())


def _output_axes(module: nn.Module) -> tuple[str | int, ...]:
    assert isinstance(module, Attention)
    return ("batch", module.heads, "sequence", module.head_dim)


def _directions(module: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Keys at -24, where elu + 1 is 4e-11; keys opposite to the queries."""
    assert isinstance(module, Attention)
    ones = torch.ones(module.head_dim, dtype=torch.float64)
    return {
        "negative-features": {"key": -24 * ones},
        "near-zero-denominator": {"query": ones, "key": -ones},
    }


MODEL = Model(
    name="attention",
    title="the bare method: query, key, value [batch, heads, sequence, head_dim]",
    build=Attention,
    entry=_entry,
    inputs=_inputs,
    output_axes=_output_axes,
    masks=True,
    directions=_directions,
    max_length=bounded_length,
)
