"""Three ways to sum over tokens: ``ReduceSum``, a product with one row of ones, and with eight.

`linattn.numerics.token_sum` takes eight rows. Here Taylor attention, whose output is mostly the
mean of the values, is run with each. Each is judged by the yardstick that goes with it: PyTorch
eager sums in the same way as the export, so its own error changes too.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.peers.measure import SEEDS, bench_of, in_onnx_runtime
from benchmarks.peers.settings import Setting
from linattn.numerics import token_sum
from linattn_runtime_checks.contract.verdict import Error, compare, error_of

SETTING = Setting(method="taylor")
LENGTHS = (4096, 16384)
KEPT = "eight rows"


def _reduce(x: Tensor) -> Tensor:
    return x.sum(-2, keepdim=True)


def _one_row(x: Tensor) -> Tensor:
    return torch.matmul(torch.ones_like(x[..., :1]).transpose(-1, -2), x)


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceSum": _reduce,
    "one row": _one_row,
    KEPT: token_sum,
}


@contextmanager
def summed(kind: str) -> Iterator[None]:
    """Let Taylor attention sum over tokens in this way."""
    with mock.patch("linattn.methods.taylor.token_sum", KINDS[kind]):
        yield


def measure_sums() -> list[dict[str, Any]]:
    """The row errors of eager and of ONNX Runtime, and the multiples, for every way to sum."""
    bench, rows = bench_of(SETTING), []
    first: dict[tuple[int, int], Error] = {}  # ReduceSum's yardsticks
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder, summed(kind):
            source = in_onnx_runtime(bench.subject, Path(folder) / "model.onnx")
            for length in LENGTHS:
                for seed in SEEDS:
                    inputs, eager, expected, allowed = bench.case(length, seed)
                    tight = first.setdefault((length, seed), allowed)
                    output = source(inputs)
                    own = compare(output, expected, "float32", allowed)
                    strict = compare(output, expected, "float32", tight)
                    rows.append(
                        {
                            "sum": kind,
                            "length": length,
                            "seed": seed,
                            "eager": error_of(eager, expected).row,
                            "ONNX Runtime": own.row_error,
                            "multiple": own.multiple,
                            "by ReduceSum's yardstick": strict.multiple,
                        }
                    )
    return rows
