"""Recurrent layers: prefill = steps = any split = the definition; padding is neutral."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linattn import MethodError, attention_layer
from linattn.layers import LAYERS
from linattn_models.streaming import STREAMING
from recurrent_cases import error
from recurrent_layers import HEADS, RECURRENT, each_layer, fresh, make, tokens

EXACT = 1e-12
SINGLE = 5e-6
"""A layer in float32: tens of roundings of 6e-8, and a norm that divides rows by their size."""
LENGTHS = (1, 2, 63, 64, 65, 257)
MASKS: dict[str, Callable[[int], Tensor]] = {
    "right": lambda n: torch.arange(n) < n - 5,
    "left": lambda n: torch.arange(n) >= 5,
    "holes": lambda n: torch.arange(n) % 3 != 1,
    "one token": lambda n: torch.arange(n) == n // 2,
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_layer_is_its_definition(name: str, length: int) -> None:
    layer, x = make(name), tokens(2, length)
    expected = LAYERS[name].oracle(x, None, layer.config, HEADS, layer.state_dict())
    assert error(layer(x), expected) < EXACT
    assert error(layer.float()(x.float()), expected) < SINGLE


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gated_delta", {"head_width": 4, "value_width": 10, "key_heads": 1}),
        ("gated_delta", {"neg_eigval": True}),
        ("kda", {"head_width": 10}),
        ("lightning", {"head_width": 10}),
    ],
)
def test_widths_that_are_not_the_models(name: str, options: dict[str, Any]) -> None:
    layer, x = make(name, **options), tokens(2, 70)
    expected = LAYERS[name].oracle(x, None, layer.config, HEADS, layer.state_dict())
    assert error(layer(x), expected) < EXACT
    assert [state.shape[1:] for state in layer.start(x)] == [s.shape for s in layer.state_specs()]


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("length", [1000, 4096])
def test_a_long_sequence_too(name: str, length: int) -> None:
    test_a_layer_is_its_definition(name, length)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("side", MASKS)
def test_padding_is_as_if_it_were_not_there(name: str, side: str) -> None:
    layer, x = make(name), tokens(3, 70)
    mask = torch.ones(3, 70, dtype=torch.bool)
    mask[0] = MASKS[side](70)
    mask[1] = False
    x[~mask] = torch.nan
    expected = LAYERS[name].oracle(x, mask, layer.config, HEADS, layer.state_dict())
    output = layer(x, mask)
    assert error(output[mask], expected[mask]) < EXACT
    assert torch.equal(output[1], torch.zeros_like(output[1]))


@each_layer
@pytest.mark.parametrize("cuts", [(1,), (63, 64), (3, 67, 68)])
def test_any_split_gives_the_whole(name: str, cuts: tuple[int, ...]) -> None:
    layer, x = make(name), tokens(2, 130)
    expected, last = layer.advance(x, None, fresh(layer, 2), False)
    states, outputs = fresh(layer, 2), []
    for start, end in itertools.pairwise((0, *cuts, 130)):
        output, states = layer.advance(x[:, start:end], None, states, False)
        outputs.append(output)
    assert error(torch.cat(outputs, dim=1), expected) < EXACT
    for mine, whole in zip(states, last, strict=True):
        assert error(mine, whole) < EXACT


@pytest.mark.slow
@each_layer
@pytest.mark.parametrize("length", [64, 257, 1000])
def test_many_steps_are_prefill(name: str, length: int) -> None:
    test_steps_are_prefill(name, length)


@each_layer
@pytest.mark.parametrize("length", [1, 2, 63, 65])
def test_steps_are_prefill(name: str, length: int) -> None:
    layer, x = make(name), tokens(2, length)
    expected, last = layer.advance(x, None, fresh(layer, 2), False)
    states, outputs = fresh(layer, 2), []
    for t in range(length):
        output, states = layer.advance(x[:, t : t + 1], None, states, True)
        outputs.append(output)
    assert error(torch.cat(outputs, dim=1), expected) < EXACT
    for mine, whole in zip(states, last, strict=True):
        assert error(mine, whole) < EXACT
    assert error(layer(x), expected) < EXACT


@each_layer
@pytest.mark.parametrize("side", MASKS)
def test_what_is_padded_is_in_no_state(name: str, side: str) -> None:
    """From a state that is not zero, with padding in between and after."""
    layer, x = make(name), tokens(1, 40)
    _, before = layer.advance(tokens(1, 9), None, fresh(layer, 1), False)
    mask = MASKS[side](40).unsqueeze(0)
    real = x[:, mask[0]]
    expected, last = layer.advance(real, None, before, False)
    x[~mask] = torch.nan
    output, states = layer.advance(x, mask, before, False)
    assert error(output[mask], expected[0]) < EXACT
    for mine, whole in zip(states, last, strict=True):
        assert error(mine, whole) < EXACT


@each_layer
def test_a_scripted_layer_is_the_same(name: str) -> None:
    layer, x = make(name), tokens(2, 70)
    mask = MASKS["right"](70).expand(2, 70)
    scripted = torch.jit.script(layer)
    assert torch.equal(scripted(x, mask), layer(x, mask))


@each_layer
def test_half_precision_keeps_its_states_in_single(name: str) -> None:
    layer = make(name).half()
    output, states = layer.advance(tokens(1, 5).half(), None, fresh(layer, 1, torch.float32), False)
    assert output.dtype == torch.float16
    assert all(state.dtype == torch.float32 for state in states)


def test_key_heads_serve_neighbours() -> None:
    shared = make("gated_delta", key_heads=1)
    expected = LAYERS["gated_delta"].oracle(
        tokens(2, 70), None, shared.config, HEADS, shared.state_dict()
    )
    assert error(shared(tokens(2, 70)), expected) < EXACT


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("gated_delta", {"key_heads": 2}, "key_heads must divide the number of heads, 3, got 2"),
        ("gla", {"gate_rank": 0}, "gate_rank must be at least 1, got 0"),
        ("kda", {"conv_size": 1}, "conv_size must be at least 2, got 1"),
        ("lightning", {"layer": 9, "layers": 3}, "layers must be at least 10, got 3"),
        ("mamba2", {"eps": 0.0}, "eps must be above 0"),
        ("delta", {"unknown": 1}, "unknown option of method 'delta'"),
    ],
)
def test_options_that_cannot_be(name: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(MethodError, match=says):
        attention_layer(24, HEADS, method=name, **options)


@each_layer
def test_a_state_that_does_not_fit_is_refused(name: str) -> None:
    layer, x = make(name), tokens(2, 5)
    good = fresh(layer, 2)
    for place, spec in enumerate(layer.state_specs()):
        for bad in (good[place][:1], good[place][..., :-1]):
            states: list[Tensor] = [*good]
            states[place] = bad
            with pytest.raises(ValueError, match=r"state.* must be .*\[2, .*start with zeros"):
                layer.advance(x, None, states, False)
        assert spec.layout.startswith("batch, ")
    with pytest.raises(TypeError, match="state must be float32"):
        layer.advance(x, None, [good[0].half(), *good[1:]], False)


@pytest.mark.parametrize("name", RECURRENT)
def test_no_token_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        make(name)(tokens(2, 0))


@each_layer
@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "masked"])
def test_a_scripted_prefill_may_be_called_without_states(name: str, masked: bool) -> None:
    layer, x = make(name), tokens(2, 20)
    mask = [torch.ones(2, 20, dtype=torch.bool)] if masked else []
    prefill = torch.jit.script(STREAMING.prefill(layer, masked, 0))
    for mine, zeros in zip(prefill(x, *mask), prefill(x, *mask, *fresh(layer, 2)), strict=True):
        assert torch.equal(mine, zeros)
