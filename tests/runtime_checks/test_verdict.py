import numpy as np
import pytest

from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.verdict import (
    INCONCLUSIVE_YARDSTICK,
    SENSITIVITY_FACTOR,
    Error,
    K,
    compare,
    error_of,
    move,
    yardstick,
)

ALLOWED = Error(row=1e-6, whole=1e-7)
Array = np.ndarray


@pytest.fixture
def expected() -> Array:
    return np.random.default_rng(0).standard_normal((2, 5, 8))


def as_float32(expected: Array, scale: Error = ALLOWED, times: float = 1.0) -> Array:
    """``expected`` off by ``times`` the allowed error in its first row."""
    off = expected.astype(np.float32)
    row = off[0, 0].astype(np.float64)
    off[0, 0] = (row * (1 + times * scale.row)).astype(np.float32)
    return off


def code(actual: Array, expected: Array, allowed: Error = ALLOWED) -> str:
    return compare(actual, expected, "float32", allowed).code


def test_a_rounded_copy_passes(expected: Array) -> None:
    assert code(expected.astype(np.float32), expected) == "pass"


def test_the_multiple_is_error_over_yardstick_and_k_is_its_limit(expected: Array) -> None:
    allowed = Error(row=1e-4, whole=1.0)
    below = compare(as_float32(expected, allowed, K * 0.98), expected, "float32", allowed)
    above = compare(as_float32(expected, allowed, K * 1.02), expected, "float32", allowed)
    assert below.multiple == pytest.approx(K * 0.98, rel=1e-2)
    # whole=1.0 is above the inconclusive limit, so judge the row alone with a small whole
    assert below.code == above.code == "inconclusive"
    allowed = Error(row=1e-4, whole=0.01)
    assert code(as_float32(expected, allowed, K * 0.98), expected, allowed) == "pass"
    assert code(as_float32(expected, allowed, K * 1.02), expected, allowed) == "parity_exceeded"


def test_one_wrong_row_among_thousands_is_seen() -> None:
    expected = np.random.default_rng(0).standard_normal((1, 4096, 16))
    actual = expected.astype(np.float32)
    actual[0, 1234] *= 1.0001
    result = compare(actual, expected, "float32", Error(row=1e-6, whole=1e-5))
    assert result.code == "parity_exceeded"
    assert result.worst_index is not None
    assert result.worst_index[:2] == (0, 1234)
    assert str(list(result.worst_index)) in result.message


def test_a_small_error_everywhere_is_seen_by_the_whole_tensor() -> None:
    expected = np.random.default_rng(0).standard_normal((1, 64, 16))
    actual = (expected * (1 + 1e-5)).astype(np.float32)
    ill_conditioned_row = Error(row=1e-3, whole=1e-7)
    assert code(actual, expected, ill_conditioned_row) == "parity_exceeded"


def test_shape_is_compared_before_values_and_never_broadcast(expected: Array) -> None:
    same_everywhere = np.broadcast_to(expected[:1], expected.shape)
    assert code(same_everywhere[:1].astype(np.float32), same_everywhere) == "shape_mismatch"


def test_dtype_is_compared(expected: Array) -> None:
    assert code(expected, expected) == "dtype_mismatch"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_on_one_side_only_is_seen(value: float, expected: Array) -> None:
    actual = expected.astype(np.float32)
    actual[1, 2, 3] = value
    result = compare(actual, expected, "float32", ALLOWED)
    assert (result.code, result.worst_index) == ("nonfinite_mismatch", (1, 2, 3))
    with_it = expected.copy()
    with_it[1, 2, 3] = value
    assert code(expected.astype(np.float32), with_it) == "nonfinite_mismatch"
    assert code(actual, with_it) == "pass"


def test_infinities_of_other_sign_differ(expected: Array) -> None:
    actual, other = expected.astype(np.float32), expected.copy()
    actual[0, 0, 0], other[0, 0, 0] = np.inf, -np.inf
    assert code(actual, other) == "nonfinite_mismatch"


def test_a_row_of_zeros_must_be_zero_exactly(expected: Array) -> None:
    expected[1] = 0
    actual = expected.astype(np.float32)
    assert code(actual, expected) == "pass"
    actual[1, 0, 0] = 1e-30
    assert code(actual, expected) == "zero_row_not_zero"


def test_all_zero_outputs_are_compared() -> None:
    zeros = np.zeros((1, 3, 4))
    assert code(zeros.astype(np.float32), zeros, Error(row=0, whole=0)) == "pass"


def test_an_output_that_rounding_alone_scatters_is_not_called_a_pass(expected: Array) -> None:
    loose = Error(row=2 * INCONCLUSIVE_YARDSTICK, whole=1e-7)
    assert code(expected.astype(np.float32), expected, loose) == "inconclusive"


def test_a_yardstick_of_zero_allows_no_error(expected: Array) -> None:
    actual = as_float32(expected, Error(row=1e-3, whole=0), 1.0)
    result = compare(actual, expected, "float32", Error(row=0, whole=0))
    assert result.code == "parity_exceeded"
    assert result.multiple == np.inf


def test_the_yardstick_is_the_larger_of_eager_and_sensitivity() -> None:
    eager, sensitivity = Error(row=5.0, whole=1.0), Error(row=1.0, whole=2.0)
    found = yardstick(eager, sensitivity)
    assert found == Error(row=5.0, whole=2.0 * SENSITIVITY_FACTOR)


def test_error_is_relative_to_each_row() -> None:
    expected = np.array([[1e-6, 0.0], [1e6, 0.0], [0.0, 0.0]])
    actual = expected.copy()
    actual[0, 0] *= 1.5
    found = error_of(actual, expected)
    assert found.row == pytest.approx(0.5)
    assert found.whole == pytest.approx(0.5e-12)


def test_rows_that_underflow_are_measured_by_the_smallest_normal_number() -> None:
    expected = np.array([[1e-60, 2e-70], [1.0, 0.5], [3e-40, 1e-40]])
    right = expected.astype(np.float32)
    assert not right[0].any()
    allowed = error_of(right, expected)
    assert allowed.row < 2e-7
    wrong = right.copy()
    wrong[0] = 1e-38  # a row that is all but zero, made as large as what a normal number can hold
    assert error_of(wrong, expected).row > 0.5
    assert compare(wrong, expected, "float32", allowed).code is Code.PARITY_EXCEEDED


def test_a_move_is_of_one_rounding_unit_which_stops_shrinking() -> None:
    limits = np.finfo(np.float32)
    eps, tiny = float(limits.eps), float(limits.smallest_normal)
    values = np.array([0.0, 1.0, -3.0, tiny, tiny / 64, -tiny / 1e6])
    for draw in (0.0, 0.25, 1.0):
        found = values.copy()
        move(found, np.full(6, draw), eps, tiny)
        unit = np.maximum(np.abs(values), tiny) * eps / 2
        unit[0] = 0.0
        np.testing.assert_allclose(found - values, (2 * draw - 1) * unit, rtol=1e-6)


@pytest.mark.parametrize("draw", [0.0, 0.25, 1.0])
def test_a_move_leaves_infinity_and_nan(draw: float) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 1.0])
    found = values.copy()
    move(found, np.full(4, draw), 2.0**-23, 2.0**-126)
    np.testing.assert_array_equal(found[:3], values[:3])
    assert found[3] != 1.0
