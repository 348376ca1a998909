"""The comparison rules of other tools, and what each would say of a pair of outputs."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.onnx.verification import VerificationInfo

Array = NDArray[Any]


def torch_onnx(eager: Array, artifact: Array) -> bool:
    """`torch.onnx.export(verify=True)`, judged by torch's own `VerificationInfo`.

    Accuracy is reported bad where the largest absolute difference is >= 5e-3 or the largest
    relative one, to |eager| + 1e-7, is >= 1e-1 (torch 2.13.0,
    `torch/onnx/_internal/exporter/_core.py`, step 6, where a comment calls the threshold
    arbitrary). NaN is never >= a threshold, so it is reported good. A bad result is logged and
    the export goes on.
    """
    if eager.shape != artifact.shape:
        return False  # torch's subtraction raises, and it reports the run as failed
    pair = (torch.from_numpy(eager), torch.from_numpy(artifact))
    info = VerificationInfo.from_tensors("output", *pair)
    return not (info.max_abs_diff >= 5e-3 or info.max_rel_diff >= 1e-1)


def optimum_onnx(eager: Array, artifact: Array) -> bool:
    """`numpy.allclose(eager, artifact, atol=1e-5)`, with numpy's rtol of 1e-5 added to it.

    optimum-onnx 0.1.0, `optimum/exporters/onnx/convert.py`, line 391; the default atol is
    `ATOL_FOR_VALIDATION` in `optimum/exporters/base.py` of optimum 2.3.0. Values that are not
    close become a warning that the export succeeded; only a wrong shape raises.
    """
    return eager.shape == artifact.shape and bool(np.allclose(eager, artifact, atol=1e-5))


def timm(eager: Array, artifact: Array) -> bool:
    """`numpy.testing.assert_almost_equal(decimal=3)`: differences below 1.5e-3 pass.

    timm 1.0.31, `timm/utils/onnx.py`, line 179, run if `--check-forward` is given; it raises.
    """
    try:
        np.testing.assert_almost_equal(eager, artifact, decimal=3)
    except AssertionError:
        return False
    return True


def polygraphy(eager: Array, artifact: Array) -> bool:
    """An element is wrong where it exceeds atol 1e-5 and also rtol 1e-5; NaN exceeds both.

    Polygraphy 0.53.6, `polygraphy/comparator/compare.py`, `SimpleCompareFunc` with its default
    `elemwise`; eager is the second of the two, to which differences are relative. Exit status 1.
    """
    if eager.shape != artifact.shape:
        return False
    with np.errstate(invalid="ignore"):
        absolute = np.abs(artifact - eager)
        relative = absolute / np.abs(np.where(eager == 0, eager.dtype.type(2**-52), eager))
        return bool(((absolute <= 1e-5) | (relative <= 1e-5)).all())


PEERS = {
    "torch.onnx": torch_onnx,
    "optimum-onnx": optimum_onnx,
    "timm": timm,
    "Polygraphy": polygraphy,
}
OWN = "linattn"


def real_polygraphy() -> tuple[str, Callable[[Array, Array], bool]] | None:
    """The installed Polygraphy's version and its default comparison; None if there is none."""
    try:
        package = importlib.import_module("polygraphy")
        comparator = importlib.import_module("polygraphy.comparator")
        logger = importlib.import_module("polygraphy.logger").G_LOGGER
    except ImportError:
        return None

    def call(eager: Array, artifact: Array) -> bool:
        pair = [comparator.IterationResult({"output": x}) for x in (artifact, eager)]
        with logger.verbosity(logger.CRITICAL):
            return bool(comparator.SimpleCompareFunc()(*pair)["output"])

    return package.__version__, call
