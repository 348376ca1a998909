"""Multi-head self-attention around any method: projections, method, output projection.

    y = Method(heads(x W_q), heads(x W_k), heads(x W_v)) W_o + b_o

The parameters have the names, shapes and initial distribution of ``torch.nn.MultiheadAttention``
(``in_proj_weight [3M, M]``, ``in_proj_bias``, ``out_proj.weight``, ``out_proj.bias``), so its
state dict loads as it is. Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2.
"""

import dataclasses
from typing import Any, Optional, cast

import torch
from torch import Tensor, nn

from linattn.contract import SIZES, STATE_LAYOUT, MethodError, StateSpec
from linattn.methods import method as find_method
from linattn.numerics import widen, zero_where_empty


class MultiHeadAttention(nn.Module):
    """Self-attention with the given method.

    Args:
        d_model: model width M.
        heads: number of heads; must divide ``d_model``.
        method: a name in :data:`linattn.METHODS`.
        bias: whether the projections have one.
        options: fields of the method's config, such as ``rank=64`` for linformer.

    Raises:
        MethodError: unknown method or option, or heads that do not divide d_model.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        method: str = "elu",
        bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        if d_model < 1 or heads < 1:
            raise MethodError(
                f"d_model and heads must be at least 1, got d_model={d_model} and heads={heads}"
            )
        if d_model % heads:
            raise MethodError(
                f"heads must divide d_model: {d_model} is not a multiple of {heads}; "
                f"heads that do: {', '.join(_divisors(d_model))}"
            )
        record = find_method(method)
        self.d_model = d_model
        self.heads = heads
        self.method_name = method
        self.has_bias = bias
        self.in_proj_weight = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model)) if bias else None
        self.attention = record.module(
            record.sized(options, heads=heads, head_dim=d_model // heads)
        )
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)
        self.reset_parameters()

    @torch.jit.unused
    def reset_parameters(self) -> None:
        """Draw the projections as ``torch.nn.MultiheadAttention`` does."""
        nn.init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            nn.init.zeros_(self.out_proj.bias)

    def forward(self, hidden_states: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """Attend.

        Args:
            hidden_states: ``[B, N, M]``.
            mask: key padding mask, bool ``[B, N]``, True = a real token.

        Returns:
            ``[B, N, M]``; zero for a sequence whose tokens are all masked.

        Raises:
            ValueError: the input is not ``[B, N, M]``, or the mask does not match it.
            TypeError: the mask is not boolean.
        """
        query, key, value = self._heads(hidden_states)
        output: Tensor = self.attention(query, key, value, mask)
        return self._joined(output, mask)

    def advance(
        self, hidden_states: Tensor, mask: Optional[Tensor], states: list[Tensor], one_token: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Attend from a state; only with a method that is recurrent.

        Args:
            hidden_states: as in ``forward``, as is ``mask``.
            mask: see there.
            states: those of :meth:`state_specs`, zeros at the start.
            one_token: there is exactly one.

        Returns:
            The output, and the states after the last token.
        """
        query, key, value = self._heads(hidden_states)
        output, state = self.attention.advance(  # type: ignore[operator]
            query, key, value, mask, states[0], one_token
        )
        return self._joined(output, mask), [state]

    def start(self, hidden_states: Tensor) -> list[Tensor]:
        """States of zeros for ``hidden_states [B, N, M]``; only with a method that is recurrent."""
        keys, values = self.attention.state_shape(  # type: ignore[operator]
            self.d_model // self.heads
        )
        wide = widen(hidden_states[:1, :1, :1])
        return [wide.new_zeros([hidden_states.size(0), self.heads, keys, values])]

    @torch.jit.unused
    def state_specs(self) -> list[StateSpec]:
        """What :meth:`advance` takes and returns; empty where the method is not recurrent."""
        if not find_method(self.method_name).capabilities.recurrent:
            return []
        one_head = cast(Any, self.attention).state_shape(self.d_model // self.heads)
        return [StateSpec(name="state", shape=(self.heads, *one_head), layout=STATE_LAYOUT)]

    def _heads(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value ``[B, H, N, D]``."""
        if hidden_states.dim() != 3 or hidden_states.size(2) != self.d_model:
            raise ValueError(
                f"hidden_states must be [batch, sequence, {self.d_model}], "
                f"got {hidden_states.shape}"
            )
        batch = hidden_states.size(0)
        length = hidden_states.size(1)
        # Matrices of rows, so that a projection and its bias are one Gemm in ONNX; and three of
        # them, since cutting up the result of one costs more than one saves.
        tokens = hidden_states.reshape(batch * length, self.d_model)
        query = self._project(tokens, 0, batch, length)
        key = self._project(tokens, 1, batch, length)
        value = self._project(tokens, 2, batch, length)
        return query, key, value

    def _joined(self, output: Tensor, mask: Optional[Tensor]) -> Tensor:
        """``[B, N, M]`` of the heads' outputs ``[B, H, N, E]``."""
        batch = output.size(0)
        length = output.size(2)
        # A copy, as reshape makes one too: but it asks first whether the length is 1.
        output = output.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        tokens = output.reshape(batch * length, self.d_model)
        output = self.out_proj(tokens).reshape(batch, length, self.d_model)
        return zero_where_empty(output, mask)

    def _project(self, tokens: Tensor, part: int, batch: int, length: int) -> Tensor:
        """Heads ``[B, H, N, D]`` of the query (0), key (1) or value (2) of ``tokens [B N, M]``."""
        rows = _rows_of(self.in_proj_weight, part, self.d_model)
        packed_bias = self.in_proj_bias
        bias: Optional[Tensor] = None
        if packed_bias is not None:
            bias = _rows_of(packed_bias, part, self.d_model)
        heads = nn.functional.linear(tokens, rows, bias)
        width = self.d_model // self.heads
        return heads.reshape(batch, length, self.heads, width).transpose(1, 2)

    def __repr__(self) -> str:
        # The config is the module's own: linattn.at_length replaces both.
        options = _options_repr(self.attention.config, self.has_bias)
        call = f"{self.d_model}, {self.heads}, method={self.method_name!r}{options}"
        return f"MultiHeadAttention({call})"


def _rows_of(packed: Tensor, part: int, width: int) -> Tensor:
    """Rows ``part * width`` up to the next of the packed projections."""
    return packed[part * width : (part + 1) * width]


def _options_repr(config: object, bias: bool) -> str:
    """The arguments that differ from their defaults, as they would be typed."""
    parts = [] if bias else ["bias=False"]
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, item.name)
        if value != item.default and item.name not in SIZES:
            parts.append(f"{item.name}={value!r}")
    return "".join(f", {part}" for part in parts)


def _divisors(number: int) -> list[str]:
    return [str(d) for d in range(1, number + 1) if number % d == 0]
