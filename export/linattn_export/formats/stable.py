"""Functions that ONNX has no operator for, written so that they keep their digits.

onnxscript writes log1p(x) as log(1 + x), expm1(x) as exp(x) - 1 and logsigmoid(x) as
log(sigmoid(x)). Each loses all digits where the function is there for: near 0, and where the
sigmoid underflows. Source: N. Higham, "Accuracy and Stability of Numerical Algorithms", section
1.14, after W. Kahan.
"""

from collections.abc import Callable
from typing import Any

_HALF = 0.5
"""Beyond it neither 1 + x nor exp(x) - 1 cancels."""


def translations() -> dict[Any, Callable[..., Any]]:
    """For torch.onnx, in place of its own."""
    import torch

    aten = torch.ops.aten
    return {
        aten.log1p.default: log1p,
        aten.special_log1p.default: log1p,
        aten.expm1.default: expm1,
        aten.special_expm1.default: expm1,
        aten.log_sigmoid.default: log_sigmoid,
    }


def log1p(self: Any) -> Any:
    """log(u) * x / (u - 1) with u = 1 + x rounded: what u lost is lost in both."""
    from onnxscript import opset18

    op: Any = opset18
    one = op.CastLike(op.Constant(value_float=1.0), self)
    total = op.Add(self, one)
    kept = op.Sub(total, one)
    logarithm = op.Log(total)
    near = op.Where(op.Equal(total, one), self, op.Mul(logarithm, op.Div(self, kept)))
    far = op.Greater(op.Abs(self), op.CastLike(op.Constant(value_float=_HALF), self))
    return op.Where(far, logarithm, near)


def expm1(self: Any) -> Any:
    """(u - 1) * x / log(u) with u = exp(x) rounded."""
    from onnxscript import opset18

    op: Any = opset18
    one = op.CastLike(op.Constant(value_float=1.0), self)
    power = op.Exp(self)
    less = op.Sub(power, one)
    near = op.Where(op.Equal(power, one), self, op.Mul(less, op.Div(self, op.Log(power))))
    far = op.Greater(op.Abs(self), op.CastLike(op.Constant(value_float=_HALF), self))
    return op.Where(far, less, near)


def log_sigmoid(self: Any) -> Any:
    """min(x, 0) - log1p(exp(-|x|)), which neither overflows nor cancels."""
    from onnxscript import opset18

    op: Any = opset18
    zero = op.CastLike(op.Constant(value_float=0.0), self)
    return op.Sub(op.Min(self, zero), log1p(op.Exp(op.Neg(op.Abs(self)))))
