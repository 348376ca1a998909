"""The graph that torch.onnx wrote, made smaller without changing what it computes.

onnxscript's own rules take a constant for 0 or 1 when it is near it (an epsilon of 1e-8 goes), put
batch normalisation into the weights of a convolution, and merge bounds that exclude each other.
Here a rule applies only if the result is the same, bit for bit; ONNX Runtime does more on loading.
"""

import logging
import math
from typing import Any

_LARGEST = 1024  # elements; a row of ones for every token is a megabyte soon
_STEPS = 2

_EXACT = frozenset(
    {
        "Abs", "Add", "Cast", "CastLike", "Ceil", "Concat", "ConstantOfShape", "Div", "Expand",
        "Flatten", "Floor", "Gather", "GatherElements", "Identity", "Max", "Min", "Mul", "Neg",
        "Pad", "Range", "Reciprocal", "Reshape", "Round", "Sign", "Slice", "Split", "Sqrt",
        "Squeeze", "Sub", "Tile", "Transpose", "Tril", "Trilu", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators whose result in floating point is one number, whoever works it out."""


def fold(model: Any) -> None:
    """Make ``model`` (onnx_ir) smaller, in place."""
    import onnx_ir as ir
    from onnx_ir.passes import common
    from onnxscript.optimizer import _constant_folding
    from onnxscript.rewriter import RewritePass

    passes = ir.passes.Sequential(
        common.InlinePass(),
        ir.passes.PassManager(
            [
                _constant_folding.FoldConstantsPass(
                    shape_inference=True,
                    input_size_limit=_constant_folding.DEFAULT_CONSTANT_FOLD_INPUT_SIZE_LIMIT,
                    output_size_limit=_LARGEST,
                    should_fold=_may_be_folded,
                ),
                RewritePass(_rules()),
                common.RemoveUnusedNodesPass(),
                common.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
                common.RemoveUnusedOpsetsPass(),
            ],
            steps=_STEPS,
            early_stop=True,
        ),
        common.RemoveUnusedNodesPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it remarks on weights that are outputs
    try:
        passes(model)
    finally:
        logger.setLevel(level)


_MOVES = frozenset({"Concat", "Gather", "Unsqueeze"})
"""What puts the weights of a recurrence in order."""


def _may_be_folded(node: Any) -> bool | None:
    """Not what a runtime may round otherwise than NumPy does; else as onnxscript decides.

    Weights that are only moved, and not used elsewhere, are moved here, however large they are.
    """
    dtype = node.outputs[0].dtype
    if node.op_type in _MOVES and all(len(value.uses()) == 1 for value in node.inputs if value):
        return True
    rounds = dtype is None or dtype.is_floating_point()
    return False if rounds and node.op_type not in _EXACT else None


def _rules() -> list[Any]:
    """The rules of onnxscript that keep every number, and exact ones for the rest."""
    from onnxscript import rewriter
    from onnxscript.rewriter.rules.common import _fuse_batchnorm, _fuse_relus_clips, _no_op

    replaced = {
        id(rule) for part in (_no_op, _fuse_batchnorm, _fuse_relus_clips) for rule in part.rules
    }
    kept = [rule for rule in rewriter._DEFAULT_REWRITE_RULES if id(rule) not in replaced]
    return [*kept, *_neutral(), _fuse_relus_clips.successive_relu_rule]


def _signed(op_type: str, zero: Any) -> bool:
    return bool(math.copysign(1, zero.numpy().item()) == (-1 if op_type == "Add" else 1))


def _neutral() -> list[Any]:
    """``x * 1``, ``x / 1``, ``x - 0`` and ``x + 0``: the constant is that number exactly.

    One with axes may broadcast, and stays. ``0.0 + -0.0`` is ``0.0``, so what leaves every float as
    it is are ``x + -0.0`` and ``x - 0.0``.
    """
    from onnxscript.rewriter import pattern

    def rule(op_type: str, number: float, place: int) -> Any:
        def target(op: Any, x: Any, constant: Any) -> Any:
            return getattr(op, op_type)(*((x, constant) if place else (constant, x)))

        def is_it(context: Any, x: Any, constant: Any) -> bool:
            value = constant.const_value
            return bool(
                value is not None
                and not constant.is_graph_input()
                and len(value.shape) == 0
                and value.numpy().item() == number
                and (number or not value.dtype.is_floating_point() or _signed(op_type, value))
            )

        def replacement(op: Any, x: Any, constant: Any) -> Any:
            return op.Identity(x)

        return pattern.RewriteRule(target, replacement, is_it)

    return [
        rule("Mul", 1, 1),
        rule("Mul", 1, 0),
        rule("Div", 1, 1),
        rule("Add", 0, 1),
        rule("Add", 0, 0),
        rule("Sub", 0, 1),
    ]
