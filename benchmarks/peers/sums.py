"""What it changes to sum tokens by a product instead of ``ReduceSum``.

`linattn.numerics.token_sum` is a product with a row of ones. Here Taylor attention, whose output
is mostly the mean of the values, is run with it and with `torch.sum` in its place, which is
exported as ``ReduceSum``. Each is judged by the yardstick that goes with it: PyTorch eager sums in
the same way as the export, so its own error changes too.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from torch import Tensor

from benchmarks.peers.measure import SEEDS, bench_of, in_onnx_runtime
from benchmarks.peers.settings import Setting
from linattn_runtime_checks.verdict import compare, error_of

SETTING = Setting(method="taylor")
LENGTHS = (4096, 16384)


def _summed(x: Tensor) -> Tensor:
    return x.sum(-2, keepdim=True)


@contextmanager
def reduce_sum() -> Iterator[None]:
    """Let Taylor attention sum tokens by `torch.sum`."""
    with mock.patch("linattn.methods.taylor.token_sum", _summed):
        yield


KINDS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "ReduceSum": reduce_sum,
    "product": nullcontext,
}


def measure_sums() -> list[dict[str, Any]]:
    """The row errors of eager and of ONNX Runtime, and the multiple, for both ways to sum."""
    bench, rows = bench_of(SETTING), []
    for kind, summed in KINDS.items():
        with tempfile.TemporaryDirectory() as folder, summed():
            source = in_onnx_runtime(bench.subject, Path(folder) / "model.onnx")
            for length in LENGTHS:
                for seed in SEEDS:
                    inputs, eager, expected, allowed = bench.case(length, seed)
                    own = compare(source(inputs), expected, "float32", allowed)
                    rows.append(
                        {
                            "sum": kind,
                            "length": length,
                            "seed": seed,
                            "eager": error_of(eager, expected).row,
                            "ONNX Runtime": own.row_error,
                            "multiple": own.multiple,
                        }
                    )
    return rows
