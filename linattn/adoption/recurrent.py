"""Our recurrent layers as transformers calls its own: with a mask and, in eager mode, a cache."""

from typing import Any, Optional

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Unsupported
from linattn.contract import MethodError
from linattn.layers import LAYERS
from linattn.layers.base import RecurrentLayer

PACKED = ("cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k", "seq_idx")
"""Arguments that say where sequences begin that lie one after the other in one row."""


class CalledWithMore(nn.Module):
    """Base of stand-ins of layers that every argument of the model is passed on to.

    ``arguments`` are those of ``forward``. Others change nothing and are dropped here, outside of
    what TorchScript sees, but for those that cut a row into sequences.
    """

    arguments: tuple[str, ...]

    def __call__(self, *args: Any, **more: Any) -> Any:
        """See ``forward``."""
        for name in PACKED:
            if more.get(name) is not None:
                raise ValueError(
                    f"{name} must be None: sequences packed into one row are not supported; "
                    "pad them, with an attention_mask"
                )
        known = {name: value for name, value in more.items() if name in self.arguments}
        return super().__call__(*args, **known)


class RecurrentStandIn(CalledWithMore):
    """A layer that is called with hidden states, a cache and a mask, and returns its output.

    Args:
        layer: ours.
        place: of the layer in the model, which the cache is asked for.
        values_first: the states of the cache are ``[B, H, E, D]``, ours ``[B, H, D, E]``.
    """

    arguments = ("hidden_states", "cache", "attention_mask")

    def __init__(self, layer: nn.Module, place: int, values_first: bool = False) -> None:
        super().__init__()
        assert isinstance(layer, RecurrentLayer)
        self.layer = layer
        self.place = place
        self.values_first = values_first

    def forward(
        self,
        hidden_states: Tensor,
        cache: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
    ) -> Tensor:
        """``[B, N, M]`` of hidden states ``[B, N, M]``.

        Args:
            hidden_states: see there.
            cache: of transformers, in eager mode; None in an export.
            attention_mask: ``[B, N]``, not 0 for a real token.
        """
        mask = attention_mask != 0 if attention_mask is not None else None
        if cache is not None:
            return self.from_cache(hidden_states, mask, cache)
        output: Tensor = self.layer(hidden_states, mask)
        return output

    @torch.jit.unused
    def from_cache(self, hidden_states: Tensor, mask: Optional[Tensor], cache: Any) -> Tensor:
        """Go on from the states in ``cache`` and leave those after the last token there."""
        if cache.is_recording_past(self.place):
            raise ValueError(
                "a cache that records the past (speculative decoding) is not supported; "
                "generate without an assistant"
            )
        state = cache.get_recurrent_state(self.place, state_idx=0)
        states = self.layer.start(hidden_states)
        if state is not None:
            window = cache.get_conv_state(self.place, state_idx=0)
            kept = states[1].size(2)
            states = [self._turned(state).to(states[0]), window[..., -kept:].to(states[1])]
        one_token = hidden_states.size(1) == 1 and state is not None
        output, (state, window) = self.layer.advance(hidden_states, mask, states, one_token)
        new = min(hidden_states.size(1), window.size(2))
        cache.update_conv_state(
            window[..., window.size(2) - new :].to(hidden_states.dtype),
            self.place,
            conv_kernel_size=window.size(2) + 1,
        )
        cache.update_recurrent_state(self._turned(state), self.place)
        return output

    def _turned(self, state: Tensor) -> Tensor:
        return state.transpose(-1, -2) if self.values_first else state


class LightningStandIn(CalledWithMore):
    """``MiniMaxLightningAttention``, which returns its state too."""

    arguments = ("hidden_states", "position_embeddings", "attention_mask", "cache")

    def __init__(self, layer: nn.Module, place: int) -> None:
        super().__init__()
        assert isinstance(layer, RecurrentLayer)
        self.layer = layer
        self.place = place

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: Optional[tuple[Tensor, Tensor]] = None,
        attention_mask: Optional[Tensor] = None,
        cache: Optional[Tensor] = None,
    ) -> tuple[Tensor, Tensor]:
        """``[B, N, M]`` and the state ``[B, H, D, D]`` of hidden states ``[B, N, M]``.

        Args:
            hidden_states: see there.
            position_embeddings: of the layers with softmax; not read.
            attention_mask: ``[B, N]``, not 0 for a real token.
            cache: of transformers, in eager mode; None in an export.
        """
        mask = attention_mask != 0 if attention_mask is not None else None
        if cache is not None:
            return self.from_cache(hidden_states, mask, cache)
        states = self.layer.start(hidden_states)
        output, states = self.layer.advance(hidden_states, mask, states, False)
        return output, states[0]

    @torch.jit.unused
    def from_cache(
        self, hidden_states: Tensor, mask: Optional[Tensor], cache: Any
    ) -> tuple[Tensor, Tensor]:
        """Go on from the state in ``cache`` and leave the one after the last token there."""
        state = cache.get_linear_cache(self.place)
        states = self.layer.start(hidden_states) if state is None else [state]
        one_token = hidden_states.size(1) == 1 and state is not None
        output, (state,) = self.layer.advance(hidden_states, mask, states, one_token)
        cache.set_linear_cache(self.place, state)
        return output, state


def ours(method: str, d_model: int, heads: int, **options: Any) -> nn.Module:
    """A layer of ours.

    Raises:
        Unsupported: it cannot be built with these options.
    """
    record = LAYERS[method]
    try:
        return record.layer(d_model, heads, record.configure(options))
    except MethodError as error:
        raise Unsupported(str(error)) from error
