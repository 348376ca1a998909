"""Recurrent layers against those of transformers, and the recurrence against that of fla-core."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fla_layers import naive
from linattn.recurrent import chunked, recurrent_oracle
from recurrent_cases import Rule, draw, each_rule, error
from recurrent_layers import fresh
from transformers_layers import MODEL, PAIRS, in_double

pytestmark = pytest.mark.references

EXACT = 1e-12
"""In float64: thousands of roundings of 1e-16, and a norm that divides rows by their size."""
SINGLE = 5e-6
"""Theirs as published: tens of roundings of 6e-8 in float32."""
LENGTHS = (1, 7, 64, 65, 130)

each_pair = pytest.mark.parametrize("name", PAIRS)


def tokens(length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(2, length, MODEL, dtype=torch.float64, generator=generator)


@each_pair
@pytest.mark.parametrize("length", LENGTHS)
def test_a_layer_is_the_published_one(name: str, length: int) -> None:
    pair, x = PAIRS[name](), tokens(length)
    output = pair.ours(x)
    with in_double():
        assert error(output, pair.theirs(x, None, None)) < EXACT
    assert error(pair.theirs(x, None, None), output) < SINGLE


@each_pair
@pytest.mark.parametrize("length", [7, 65, 130])
def test_padding_on_the_left_is_theirs_too(name: str, length: int) -> None:
    pair, x = PAIRS[name](), tokens(length)
    mask = torch.arange(length) >= torch.tensor([[5], [0]])
    output = pair.ours(x, mask)
    with in_double():
        expected = pair.theirs(x, mask, None)
    assert error(output[mask], expected[mask]) < EXACT


@each_pair
@pytest.mark.parametrize("length", LENGTHS)
def test_steps_from_a_prefill_are_theirs(name: str, length: int) -> None:
    pair, x = PAIRS[name](), tokens(length + 5)
    cache = pair.cache()
    output, states = pair.ours.advance(x[:, :length], None, fresh(pair.ours, 2), False)
    with in_double():
        assert error(output, pair.theirs(x[:, :length], None, cache)) < EXACT
    for t in range(length, length + 5):
        token = x[:, t : t + 1]
        output, states = pair.ours.advance(token, None, states, True)
        with in_double():
            assert error(output, pair.theirs(token, None, cache)) < EXACT
            for mine, other in zip(states, pair.states(cache), strict=True):
                assert error(mine, other) < EXACT


def of_fla(rule: Rule, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The result and the state; queries are divided by the root of their width."""
    query, key, value, state = (x[name] for name in ("query", "key", "value", "state"))
    if rule.name == "delta":  # head-major
        heads = (y.transpose(1, 2) for y in (query, key, value, x["beta"]))
        output, last = naive("delta_rule.delta_rule_recurrence")(*heads, initial_state=state)
        return output.transpose(1, 2), last
    more: dict[str, Any] = {"initial_state": state, "output_final_state": True}
    function, gates = {
        "linear": ("linear_attn.naive_recurrent_linear_attn", {}),
        "gated": ("simple_gla.naive_recurrent_simple_gla", {"g": "decay"}),
        "gated by channel": ("gla.naive_recurrent_gla", {"gk": "decay"}),
        "gated delta": (
            "gated_delta_rule.naive_recurrent_gated_delta_rule",
            {"g": "decay", "beta": "beta"},
        ),
        "gated delta by channel": ("kda.naive_recurrent_kda", {"g": "decay", "beta": "beta"}),
    }[rule.name]
    more |= {theirs: x[ours] for theirs, ours in gates.items()}
    found: tuple[Tensor, Tensor] = naive(function)(query, key, value, **more)
    return found


@each_rule
@pytest.mark.parametrize("length", LENGTHS)
def test_the_recurrence_is_that_of_flash_linear_attention(rule: Rule, length: int) -> None:
    x = draw(rule, length)
    with in_double():
        theirs = of_fla(rule, x.by_name())
    scale = x.query.shape[-1] ** -0.5
    for mine in (
        recurrent_oracle(**x.by_name(), scale=scale),
        chunked(**x.by_name(), scale=scale),
    ):
        for found, expected in zip(mine, theirs, strict=True):
            assert error(found, expected) < EXACT
