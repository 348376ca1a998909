"""What the recurrent layers share: from hidden states through the recurrence and back.

A layer adds ``project``, which makes queries, keys, values and gates of the hidden states, and
``finish``, which turns what the recurrence returns into the output. Padding is neutral on either
side: a masked token writes nothing, lets nothing fade, and is in no window of a convolution.
"""

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn

from linattn.contract import CONV_LAYOUT, STATE_LAYOUT, MethodError, StateSpec
from linattn.numerics import widen, zero_where_empty
from linattn.recurrent import recurrence


class Projected(NamedTuple):
    """What a layer makes of its hidden states, in float32 or wider.

    query, key ``[B, N, H, D]``, value ``[B, N, H, E]``, decay ``[B, N, H]`` or ``[B, N, H, D]``,
    beta ``[B, N, H]``, conv the state of the convolution (empty where there is none), skip what
    ``finish`` adds or multiplies, as the layer says.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Optional[Tensor]
    beta: Optional[Tensor]
    conv: Tensor
    skip: Tensor


class RecurrentLayer(nn.Module):
    """Base of the layers in this folder; shapes as in :class:`linattn.MultiHeadAttention`.

    Args:
        d_model: model width M.
        heads: number of states, H; must divide ``d_model``.
        config: of the method.
        key_width: D. ``value_width``: E.
        conv_channels: of the short convolution, 0 for none; ``conv_size``: its taps, K.
        scale: of the queries.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        config: Any,
        *,
        key_width: int,
        value_width: int,
        scale: float,
        conv_channels: int = 0,
        conv_size: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.d_model = d_model
        self.heads = heads
        self.key_width = key_width
        self.value_width = value_width
        self.scale = scale
        self.conv_channels = conv_channels
        self.conv_size = conv_size

    def forward(self, hidden_states: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """Attend from the start.

        Args:
            hidden_states: ``[B, N, M]``.
            mask: key padding mask, bool ``[B, N]``, True = a real token.

        Returns:
            ``[B, N, M]``; zero for a sequence whose tokens are all masked.
        """
        output, _ = self.advance(hidden_states, mask, self.start(hidden_states), False)
        return output

    def start(self, hidden_states: Tensor) -> list[Tensor]:
        """States of zeros for ``hidden_states [B, N, M]``."""
        wide = widen(hidden_states[:1, :1, :1])
        batch = hidden_states.size(0)
        states = [wide.new_zeros([batch, self.heads, self.key_width, self.value_width])]
        if self.conv_channels > 0:
            states.append(wide.new_zeros([batch, self.conv_channels, self.conv_size - 1]))
        return states

    def advance(
        self, hidden_states: Tensor, mask: Optional[Tensor], states: list[Tensor], one_token: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Attend from a state.

        Args:
            hidden_states: as in ``forward``, as is ``mask``.
            mask: see there.
            states: those of :meth:`state_specs`, zeros at the start, float32 or wider.
            one_token: there is exactly one.

        Returns:
            The output, and the states after the last token.

        Raises:
            ValueError: a shape that does not fit.
            TypeError: a mask that is not boolean, or a state in half precision.
        """
        if hidden_states.dim() != 3 or hidden_states.size(2) != self.d_model:
            raise ValueError(
                f"hidden_states must be [batch, sequence, {self.d_model}], "
                f"got {hidden_states.shape}"
            )
        if hidden_states.size(1) < 1:
            raise ValueError(f"there must be at least one token, got {hidden_states.shape}")
        if mask is not None:
            check_mask(mask, hidden_states)
            # What is masked may hold NaN.
            hidden_states = zero_rows(hidden_states, mask)
        conv = states[1] if self.conv_channels > 0 else widen(hidden_states[:1, :1, :1])
        made = self.project(hidden_states, mask, conv, one_token)
        key, decay, beta = made.key, made.decay, made.beta
        if mask is not None:
            key = zero_rows(key, mask)
            decay = zero_rows(decay, mask) if decay is not None else None
            beta = zero_rows(beta, mask) if beta is not None else None
        output, last = recurrence(
            made.query, key, made.value, decay, beta, states[0], self.scale, one_token
        )
        output = self.finish(output, made.skip, hidden_states).to(hidden_states.dtype)
        after = [last]
        if self.conv_channels > 0:
            after.append(made.conv)
        return zero_where_empty(output, mask), after

    def project(
        self, hidden_states: Tensor, mask: Optional[Tensor], conv: Tensor, one_token: bool
    ) -> Projected:
        """Queries, keys, values and gates."""
        raise NotImplementedError

    def finish(self, output: Tensor, skip: Tensor, hidden_states: Tensor) -> Tensor:
        """The output ``[B, N, M]`` of the recurrence's ``[B, N, H, E]``."""
        raise NotImplementedError

    @torch.jit.unused
    def state_specs(self) -> list[StateSpec]:
        """What :meth:`advance` takes and returns."""
        shape = (self.heads, self.key_width, self.value_width)
        found = [StateSpec(name="state", shape=shape, layout=STATE_LAYOUT)]
        if self.conv_channels:
            window = (self.conv_channels, self.conv_size - 1)
            found.append(StateSpec(name="conv", shape=window, layout=CONV_LAYOUT))
        return found


def zero_rows(x: Tensor, mask: Tensor) -> Tensor:
    """``x [B, N, ..]`` with zeros at masked tokens, whatever was there."""
    shape = list(mask.shape) + [1] * (x.dim() - 2)
    return torch.where(mask.reshape(shape), x, x.new_zeros([]))


def check_mask(mask: Tensor, hidden_states: Tensor) -> None:
    """Raise unless ``mask`` is a bool ``[B, N]``."""
    if mask.dtype != torch.bool:
        raise TypeError(
            "mask must be a bool tensor (True = a real token); got another dtype; "
            "build it with a comparison, such as tokens != padding"
        )
    if mask.dim() != 2 or list(mask.shape) != list(hidden_states.shape[:2]):
        raise ValueError(
            f"mask must have shape {list(hidden_states.shape[:2])} (batch, tokens), "
            f"got {list(mask.shape)}"
        )


def width_of(method: str, d_model: int, heads: int) -> int:
    """Channels of one head.

    Raises:
        MethodError: heads do not divide d_model.
    """
    if d_model < 1 or heads < 1 or d_model % heads:
        raise MethodError(f"{method}: heads must divide d_model, got {heads} and {d_model}")
    return d_model // heads
