"""What a fingerprint sees, what it does not, and what a captured program leaves of itself."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blame_faults import make
from linattn_runtime_checks.contract.fingerprint import TOLERANCE, Fingerprint


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def of(array: np.ndarray) -> Fingerprint:
    return Fingerprint.of(array, "node", "op")


def test_layout_does_not_count() -> None:
    x = drawn(3, 2, 5, 4)
    for same in (x.transpose(0, 2, 1, 3), x.reshape(-1, 8), x[:, :, None], x.astype(np.float64)):
        assert of(same).matches(of(x))


@given(st.integers(0, 1000), st.floats(2e-4, 1.0))
def test_values_do(seed: int, step: float) -> None:
    x = drawn(3, 4, 5, seed=seed)
    assert not of(x).matches(of(x * (1 + step)))
    assert not of(x).matches(of(x + 10 * step))
    assert not of(x).matches(of(-x))
    assert not of(x).matches(of(x[:2]))


@given(st.integers(0, 1000))
def test_rounding_does_not(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(30, 40)) * 10 ** generator.uniform(-6, 6)
    x -= x.mean()  # a sum of nothing but rounding
    for dtype, unit in (("float32", 2**-23), ("float16", 2**-10)):
        moved = x * (1 + unit * generator.uniform(-1, 1, size=x.shape))
        assert of(x).matches(of(moved), TOLERANCE[dtype])
        assert of(moved).matches(of(x), TOLERANCE[dtype])


def test_masked_scores_do_not_hide_the_others() -> None:
    x = drawn(4, 4)
    masked, other = x.copy(), x * 1.001
    masked[:, 3] = other[:, 3] = np.finfo(np.float32).min
    assert not of(masked).matches(of(other))
    assert not of(masked).matches(of(np.where(masked < -1e30, -masked, masked)))
    assert not of(masked).matches(of(np.where(masked < -1e30, 0, masked)))
    x[:, 2] = np.finfo(np.float32).min
    assert not of(masked).matches(of(x)), "another column is masked"


def test_what_is_not_finite_must_agree() -> None:
    x = drawn(4, 4)
    nan, infinite = x.copy(), x.copy()
    nan[0, 0], infinite[0, 0] = np.nan, np.inf
    assert of(nan).matches(of(nan.T))
    assert of(infinite).matches(of(infinite.T))
    assert not of(nan).matches(of(x))
    assert not of(infinite).matches(of(x))
    assert not of(infinite).matches(of(-infinite))


def test_zeros_match_zeros_only() -> None:
    assert of(np.zeros(4)).matches(of(np.zeros((2, 2))))
    assert not of(np.zeros(4)).matches(of(np.full(4, 1e-30)))


def test_of_nothing_there_is_none() -> None:
    with pytest.raises(ValueError, match="no elements"):
        of(np.zeros((0, 3)))


@pytest.mark.parametrize("odd", [0.0, np.nan, np.inf, -np.inf])
def test_json_keeps_every_number(odd: float) -> None:
    found = of(np.array([1 / 3, odd, -3.4e38]))
    for text in (found.model_dump_json(), json.dumps(found.model_dump())):
        assert Fingerprint.model_validate_json(text).matches(found, 0.0)


def test_a_program_leaves_what_it_computes_in_order(tmp_path: Path) -> None:
    made = make(tmp_path, "elu")
    ops = [print_.op.split(".")[1] for print_ in made.known if "." in print_.op]
    assert [op for op in ops if op in ("linear", "exp", "div")] == [
        *["linear"] * 6, "exp", "exp", "div", "linear", "linear",
    ]  # fmt: skip
    assert [print_.node for print_ in made.known].count("linear without bias") == 1
    assert made.known[-1].count == made.inputs["hidden_states"].size, "the output comes last"
    assert all(print_.count > 1 for print_ in made.known)
