"""Entries that go on from a state: ``prefill`` of a piece of a sequence, and ``step`` of one token.

``layer`` is anything with ``advance(inputs, mask, states, one_token)``, such as a recurrent layer.
States come in after the inputs and go out after the output, in the order of its
``state_specs()``; zeros at the start of a sequence, where TorchScript may also be called without.
"""

from typing import Any, Optional, cast

from torch import Tensor, nn

from linattn import StateSpec
from linattn_models.contract import Streaming, check_length


def given(
    fresh: list[Tensor], past_state: Optional[Tensor], past_conv: Optional[Tensor]
) -> list[Tensor]:
    """The states that were given, and ``fresh`` ones for what was not."""
    states = [past_state if past_state is not None else fresh[0]]
    if len(fresh) > 1:
        states.append(past_conv if past_conv is not None else fresh[1])
    return states


class PrefillEntry(nn.Module):
    """``forward(inputs, past_state)``."""

    def __init__(self, layer: nn.Module, length: int) -> None:
        super().__init__()
        self.layer = layer
        self.length = length

    def forward(self, inputs: Tensor, past_state: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
        """Return the output and the state after the last token."""
        check_length(inputs.size(1), self.length)
        fresh = self.layer.start(inputs)  # type: ignore[operator]
        output, states = self.layer.advance(  # type: ignore[operator]
            inputs, None, given(fresh, past_state, None), False
        )
        return output, states[0]


class MaskedPrefillEntry(nn.Module):
    """``forward(inputs, attention_mask, past_state)``, True = a real token."""

    def __init__(self, layer: nn.Module, length: int) -> None:
        super().__init__()
        self.layer = layer
        self.length = length

    def forward(
        self, inputs: Tensor, attention_mask: Tensor, past_state: Optional[Tensor] = None
    ) -> tuple[Tensor, Tensor]:
        """Return the output and the state after the last real token."""
        check_length(inputs.size(1), self.length)
        fresh = self.layer.start(inputs)  # type: ignore[operator]
        output, states = self.layer.advance(  # type: ignore[operator]
            inputs, attention_mask, given(fresh, past_state, None), False
        )
        return output, states[0]


class ConvPrefillEntry(nn.Module):
    """``forward(inputs, past_state, past_conv)``."""

    def __init__(self, layer: nn.Module, length: int) -> None:
        super().__init__()
        self.layer = layer
        self.length = length

    def forward(
        self,
        inputs: Tensor,
        past_state: Optional[Tensor] = None,
        past_conv: Optional[Tensor] = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output and both states after the last token."""
        check_length(inputs.size(1), self.length)
        fresh = self.layer.start(inputs)  # type: ignore[operator]
        output, states = self.layer.advance(  # type: ignore[operator]
            inputs, None, given(fresh, past_state, past_conv), False
        )
        return output, states[0], states[1]


class MaskedConvPrefillEntry(nn.Module):
    """``forward(inputs, attention_mask, past_state, past_conv)``, True = a real token."""

    def __init__(self, layer: nn.Module, length: int) -> None:
        super().__init__()
        self.layer = layer
        self.length = length

    def forward(
        self,
        inputs: Tensor,
        attention_mask: Tensor,
        past_state: Optional[Tensor] = None,
        past_conv: Optional[Tensor] = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output and both states after the last real token."""
        check_length(inputs.size(1), self.length)
        fresh = self.layer.start(inputs)  # type: ignore[operator]
        output, states = self.layer.advance(  # type: ignore[operator]
            inputs, attention_mask, given(fresh, past_state, past_conv), False
        )
        return output, states[0], states[1]


class StepEntry(nn.Module):
    """``forward(inputs, past_state)`` of one token."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, inputs: Tensor, past_state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the state after the token."""
        check_length(inputs.size(1), 1)
        output, states = self.layer.advance(inputs, None, [past_state], True)  # type: ignore[operator]
        return output, states[0]


class ConvStepEntry(nn.Module):
    """``forward(inputs, past_state, past_conv)`` of one token."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, inputs: Tensor, past_state: Tensor, past_conv: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output and both states after the token."""
        check_length(inputs.size(1), 1)
        output, states = self.layer.advance(  # type: ignore[operator]
            inputs, None, [past_state, past_conv], True
        )
        return output, states[0], states[1]


def states_of(module: nn.Module) -> list[StateSpec]:
    """What ``module`` carries from token to token; nothing where its method is not recurrent."""
    found: list[StateSpec] = cast(Any, module).state_specs()
    return found


def prefill(module: nn.Module, mask: bool, length: int) -> nn.Module:
    """The entry for one length of piece, 0 for any."""
    conv = len(states_of(module)) > 1
    plain = ConvPrefillEntry if conv else PrefillEntry
    masked = MaskedConvPrefillEntry if conv else MaskedPrefillEntry
    return (masked if mask else plain)(module, length)


def step(module: nn.Module) -> nn.Module:
    """The entry for one token."""
    return (ConvStepEntry if len(states_of(module)) > 1 else StepEntry)(module)


STREAMING = Streaming(states=states_of, prefill=prefill, step=step)
