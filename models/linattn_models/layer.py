"""One multi-head self-attention layer: projections, method, output projection.

output = MultiHeadAttention(hidden_states)      both [B, N, M]
"""

import torch
from torch import Tensor, nn

from linattn import MultiHeadAttention, attention_layer
from linattn_models.contract import (
    InputSpec,
    Model,
    ModelOptions,
    bounded_length,
    check_length,
)
from linattn_models.sizes import head_sizes
from linattn_models.streaming import STREAMING


class LayerEntry(nn.Module):
    """``forward(hidden_states [B, N, M])``."""

    def __init__(self, layer: nn.Module, length: int) -> None:
        super().__init__()
        self.layer = layer
        self.length = length

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return ``[B, N, M]``."""
        check_length(hidden_states.size(1), self.length)
        output: Tensor = self.layer(hidden_states)
        return output


class MaskedLayerEntry(nn.Module):
    """``forward(hidden_states [B, N, M], attention_mask [B, N])``, True = a real token."""

    def __init__(self, layer: nn.Module, length: int) -> None:
        super().__init__()
        self.layer = layer
        self.length = length

    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        """Return ``[B, N, M]``; zero for a sequence whose tokens are all masked."""
        check_length(hidden_states.size(1), self.length)
        output: Tensor = self.layer(hidden_states, attention_mask)
        return output


def _build(options: ModelOptions) -> nn.Module:
    heads, head_dim = head_sizes(options)
    return attention_layer(heads * head_dim, heads, method=options.method, **options.method_options)


def _entry(module: nn.Module, mask: bool, length: int) -> nn.Module:
    return (MaskedLayerEntry if mask else LayerEntry)(module, length)


def _inputs(module: nn.Module, mask: bool) -> tuple[InputSpec, ...]:
    hidden = (InputSpec(name="hidden_states", axes=_output_axes(module)),)
    masks = (InputSpec(name="attention_mask", axes=("batch", "sequence"), kind="mask"),)
    return hidden + (masks if mask else ())


def _output_axes(module: nn.Module) -> tuple[str | int, ...]:
    return ("batch", "sequence", int(module.d_model))  # type: ignore[arg-type]


def _directions(module: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Hidden states whose keys are all near -24, and such whose queries and keys are opposite."""
    if not isinstance(module, MultiHeadAttention):
        return {}  # these layers have no elu, relu or Taylor features
    query, key, _ = module.in_proj_weight.detach().double().chunk(3)
    # Ridge regression: the exact solution of a random square system is huge.
    square = key.T @ key + 1e-3 * torch.eye(module.d_model, dtype=torch.float64)
    negative = torch.linalg.solve(square, key.T @ torch.full((module.d_model,), -24.0).double())
    opposite = torch.linalg.svd(query + key).Vh[-1]  # the smallest |(W_q + W_k) x|
    return {
        "negative-features": {"hidden_states": negative},
        "near-zero-denominator": {"hidden_states": opposite},
    }


MODEL = Model(
    name="layer",
    title="one attention layer: hidden_states [batch, sequence, d_model]",
    build=_build,
    entry=_entry,
    inputs=_inputs,
    output_axes=_output_axes,
    streaming=STREAMING,
    masks=True,
    directions=_directions,
    max_length=bounded_length,
)
