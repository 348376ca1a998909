"""The recurrence: chunks, steps and any mixture of them are the definition, token after token."""

import itertools

import pytest
import torch
from torch import Tensor

from linattn.recurrent import chunked, recurrent_oracle, step
from linattn.recurrent.inverse import unit_lower_inverse
from recurrent_cases import RULES, SCALE, H, Inputs, Rule, draw, each_rule, error

EXACT = 1e-12
"""In float64: thousands of roundings of 1e-16 each."""
SINGLE = 1e-6
"""In float32: ten roundings or so of 6e-8; a chunk of a delta rule solves a system in between."""
LENGTHS = (1, 2, 63, 64, 65, 257)


def stepped(x: Inputs) -> tuple[Tensor, Tensor]:
    state, outputs = x.state, []
    for t in range(x.query.size(1)):
        token = x.tokens(t, t + 1, state)
        output, state = step(
            token.query, token.key, token.value, state, token.decay, token.beta, SCALE
        )
        outputs.append(output)
    return torch.cat(outputs, dim=1), state


@each_rule
@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_and_steps_are_the_definition(rule: Rule, length: int) -> None:
    x = draw(rule, length)
    expected = recurrent_oracle(**x.by_name(), scale=SCALE)
    for output, state in (chunked(**x.by_name(), scale=SCALE), stepped(x)):
        assert error(output, expected[0]) < EXACT
        assert error(state, expected[1]) < EXACT


@pytest.mark.slow
@each_rule
@pytest.mark.parametrize("length", [1000, 4096])
def test_long_sequences_too(rule: Rule, length: int) -> None:
    test_chunks_and_steps_are_the_definition(rule, length)


@each_rule
@pytest.mark.parametrize("strength", [1.0, 2000.0])
def test_single_precision_costs_a_few_roundings(rule: Rule, strength: float) -> None:
    """Gates that close for good amid open ones: no sum may round as the longest of them does."""
    x = draw(rule, 257, strength=strength)
    expected = recurrent_oracle(**x.by_name(), scale=SCALE)
    single = x.to(torch.float32)
    for output, state in (chunked(**single.by_name(), scale=SCALE), stepped(single)):
        assert error(output, expected[0]) < SINGLE
        assert error(state, expected[1]) < SINGLE
        assert state.dtype == torch.float32


@each_rule
@pytest.mark.parametrize("cuts", [(1,), (64,), (63, 64, 65), (100, 101), (128, 192)])
def test_any_split_into_pieces_gives_the_whole(rule: Rule, cuts: tuple[int, ...]) -> None:
    x = draw(rule, 200)
    expected, last = chunked(**x.by_name(), scale=SCALE)
    state, outputs = x.state, []
    for start, end in itertools.pairwise((0, *cuts, 200)):
        output, state = chunked(**x.tokens(start, end, state).by_name(), scale=SCALE)
        outputs.append(output)
    assert error(torch.cat(outputs, dim=1), expected) < EXACT
    assert error(state, last) < EXACT


@each_rule
def test_no_state_is_a_state_of_zeros(rule: Rule) -> None:
    x = draw(rule, 70)
    zeros = x.changed(state=torch.zeros_like(x.state))
    for mine, other in zip(chunked(**x.without_state()), chunked(**zeros.by_name()), strict=True):
        assert torch.equal(mine, other)


@each_rule
@pytest.mark.parametrize("place", [1, 15, 16, 63, 64, 99])
def test_a_later_token_changes_no_byte_of_an_earlier_output(rule: Rule, place: int) -> None:
    x = draw(rule, 100)
    before, _ = chunked(**x.by_name(), scale=SCALE)
    later = draw(rule, 100, strength=3.0)
    other = {
        name: tensor
        if tensor is None or name == "state"
        else torch.cat((tensor[:, :place], 1 - later.by_name()[name][:, place:]), dim=1)
        for name, tensor in x.by_name().items()
    }
    if other["decay"] is not None:
        other["decay"] = other["decay"].clamp(max=0)
    after, _ = chunked(**other, scale=SCALE)
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.equal(before[:, place:], after[:, place:])


@each_rule
@pytest.mark.parametrize("side", ["left", "right"])
def test_neutral_tokens_are_padding(rule: Rule, side: str) -> None:
    x = draw(rule, 90)
    expected, last = chunked(**x.by_name(), scale=SCALE)
    pad = 13
    padded = {}
    for name, tensor in x.by_name().items():
        if tensor is None or name == "state":
            padded[name] = tensor
            continue
        shape = list(tensor.shape)
        shape[1] = pad
        # Neutral: nothing is written, nothing decays; queries and values may hold anything.
        filler = torch.zeros(shape) if name in ("key", "decay", "beta") else torch.full(shape, 7.0)
        parts = (filler.double(), tensor) if side == "left" else (tensor, filler.double())
        padded[name] = torch.cat(parts, dim=1)
    output, state = chunked(**padded, scale=SCALE)
    kept = output[:, pad:] if side == "left" else output[:, :-pad]
    assert error(kept, expected) < EXACT
    assert error(state, last) < EXACT


@each_rule
@pytest.mark.parametrize("heads", [(4, 4, 4), (4, 2, 2), (2, 2, 4), (4, 1, 2)])
def test_heads_are_shared_by_neighbours(rule: Rule, heads: tuple[int, int, int]) -> None:
    x = draw(rule, 70, heads=heads)
    whole = x.changed(
        query=x.query.repeat_interleave(H // heads[0], dim=2),
        key=x.key.repeat_interleave(H // heads[1], dim=2),
        value=x.value.repeat_interleave(H // heads[2], dim=2),
    )
    expected, last = recurrent_oracle(**whole.by_name(), scale=SCALE)
    for output, state in (chunked(**x.by_name(), scale=SCALE), stepped(x)):
        assert error(output, expected) < EXACT
        assert error(state, last) < EXACT


@each_rule
def test_half_precision_keeps_its_state_in_single(rule: Rule) -> None:
    x = draw(rule, 70).to(torch.float16)
    wide = x.to(torch.float64)
    expected, _ = recurrent_oracle(**wide.by_name(), scale=SCALE)
    output, state = chunked(**x.changed(state=x.state.float()).by_name(), scale=SCALE)
    assert output.dtype == torch.float16
    assert state.dtype == torch.float32
    assert error(output, expected) < 1e-3  # the output's own rounding is 5e-4


@pytest.mark.parametrize("rule", [RULES[1], RULES[4]], ids=lambda rule: rule.name)
def test_ten_thousand_steps_do_not_drift(rule: Rule) -> None:
    x = draw(rule, 10_000, heads=(1, 1, 1))
    _, expected = stepped(x)
    _, state = stepped(x.to(torch.float32))
    assert error(state, expected) < SINGLE


def test_the_inverse_of_keys_that_resemble_each_other() -> None:
    """Where doubling on all 64 rows at once is wrong by factors."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(1, 16, dtype=torch.float64, generator=generator)
    noise = torch.randn(64, 16, dtype=torch.float64, generator=generator)
    keys = torch.nn.functional.normalize(common + 0.1 * noise, dim=-1)
    lower = (keys @ keys.T).tril(-1)
    expected = torch.linalg.inv(torch.eye(64, dtype=torch.float64) + lower)
    assert error(unit_lower_inverse(lower), expected) < EXACT
    assert error(unit_lower_inverse(lower.float()), expected) < 1e-5


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"query": torch.zeros(2, 8, 3, 6)}, ValueError, "must divide the largest"),
        ({"query": torch.zeros(2, 8, 4, 7)}, ValueError, "same width"),
        (
            {name: torch.zeros(2, 0, 4, 6) for name in ("query", "key", "value")},
            ValueError,
            "at least one token",
        ),
        ({"query": torch.zeros(3, 8, 4, 6)}, ValueError, "same batch"),
        ({"value": torch.zeros(2, 9, 4, 5)}, ValueError, "same number of tokens"),
        ({"value": torch.zeros(2, 8, 5)}, ValueError, r"\[B, N, H, D\]"),
        ({"decay": torch.zeros(2, 8, 4, 3)}, ValueError, "as wide as the keys, 6"),
        ({"decay": torch.zeros(2, 4)}, ValueError, r"decay must be \[B, N, H\] or"),
        ({"beta": torch.zeros(2, 9, 4)}, ValueError, "beta must have the batch and tokens"),
        ({"state": torch.zeros(2, 4, 5, 6)}, ValueError, r"state must be .* = \[2, 4, 6, 5\]"),
        ({"state": torch.zeros(1, 4, 6, 5)}, ValueError, "state must be"),
        ({"state": torch.zeros(2, 4, 6, 5).half()}, TypeError, "state must be float32"),
    ],
)
@pytest.mark.parametrize("scripted", [False, True])
def test_what_does_not_fit_is_refused(
    change: dict[str, Tensor], kind: type[Exception], says: str, scripted: bool
) -> None:
    x = draw(RULES[4], 8).to(torch.float32)
    run = torch.jit.script(chunked) if scripted else chunked
    with pytest.raises(torch.jit.Error if scripted else kind, match=says):
        run(**x.changed(**change).by_name())


def test_a_step_takes_one_token() -> None:
    x = draw(RULES[0], 2)
    with pytest.raises(ValueError, match="step takes one token, got 2"):
        step(x.query, x.key, x.value, x.state)
