"""Finds which of ONNX Runtime's graph optimisers makes a right model fail.

First the lowest optimisation level that fails, then, by halving the set of optimisers that are
left out at that level, a smallest set without which it does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.runtimes.base import Tensors

# Each includes those before it. Older releases have no level of layouts; there "all" is it.
LEVELS = {
    "off": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}

# The names that ``disabled_optimizers`` knows, of transformers and of rewrite rules; unknown ones
# do no harm, so names of several releases are here. What simplifies a graph without changing what
# its nodes compute stands last: leaving it out may hide a fusion from its pattern, and of two
# explanations the fusion is the better one.
OPTIMIZERS = (
    # Products and attention.
    "MatMulAddFusion", "MatMulScaleFusion", "MatmulTransposeFusion", "MatMulActivationFusion",
    "MatMul_BatchNormalization_Fusion", "GemmActivationFusion", "GemmSumFusion",
    "GemmTransposeFusion", "AttentionFusion", "GroupQueryAttentionFusion",
    "GroupQueryAttentionPreNormFusion", "BiasSoftmaxFusion", "DivMulFusion", "NotWhereFusion",
    # Activations and norms.
    "GeluFusion", "GeluFusionL1", "GeluFusionL2", "BiasGeluFusion", "FastGeluFusion",
    "QuickGeluFusion", "GeluApproximation", "SwiGluFusion", "LayerNormFusion", "LayerNormFusionL1",
    "LayerNormFusionL2", "SimplifiedLayerNormFusion", "SkipLayerNormFusion",
    "BiasSkipLayerNormFusion", "EmbedLayerNormFusion", "BiasDropoutFusion", "FuseReluClip",
    # Convolutions and layouts.
    "ConvActivationFusion", "ConvAddActivationFusion", "ConvAddFusion", "ConvMulFusion",
    "ConvBNFusion", "Pad_Fusion", "SliceConcatToSpaceToDepthFusion", "NchwcTransformer",
    "NhwcTransformer",
    # Quantised and half-precision numbers.
    "DynamicQuantizeMatMulFusion", "MatMulIntegerToFloatFusion", "MatMulNBitsFusion",
    "DQMatMulNBitsFusion", "MatMulNBitsMlpFusion", "MatMulNBitsQkvFusion",
    "MatMulNBitsQLoRAFusion", "ClipQuantRewrite", "ReluQuantRewrite", "QDQPropagationTransformer",
    "QDQS8ToU8Transformer", "QDQSelectorActionTransformer", "QDQFinalCleanupTransformer",
    "DoubleQDQPairsRemover", "WeightBiasQuantization", "EnsureUniqueDQForNodeUnit",
    "Avx2WeightS8ToU8Transformer", "ConstantFoldingDQ", "RemoveDuplicateCastTransformer",
    "FuseFp16InitializerToFp32NodeTransformer",
    # Shapes and slices.
    "ReshapeFusion", "GatherSliceToSplitFusion", "GatherToSliceFusion", "LabelEncoderFusion",
    "TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider",
    # Simplification.
    "EliminateIdentity", "EliminateSlice", "UnsqueezeElimination",
    "EliminateDropout", "ExpandElimination", "CastElimination", "CastChainElimination",
    "PreShapeNodeElimination", "NoopElimination", "FreeDimensionOverrideTransformer",
    "Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer", "ConstantSharing",
    "CommonSubexpressionElimination", "ConstantFolding",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How ONNX Runtime optimises: a key of :data:`LEVELS`, and what it leaves out of that level."""

    level: str
    disabled: tuple[str, ...] = ()


Fails = Callable[[Setting], bool]
"""Whether the fault shows when the model is optimised so. It is called
``2 * log2(len(OPTIMIZERS))`` times at most for one guilty optimiser, and a few for the levels; it
must give one answer for one setting.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerBlame:
    """What makes it fail.

    Attributes:
        level: the lowest that fails.
        optimizers: a smallest set without which that level does not fail; empty where the fault
            is there without any optimiser, or with none of those that have a name.
        message: both as a sentence.
    """

    level: str
    optimizers: list[str]
    message: str


def blame_optimizers(fails: Fails, names: Sequence[str] = OPTIMIZERS) -> OptimizerBlame | None:
    """The optimisers at fault, or None where nothing fails at any level.

    Args:
        fails: the fault; :func:`output_fails` makes one from a model, inputs and a judge.
        names: of the optimisers to suspect, the likely ones first.
    """
    level = next((level for level in available_levels() if fails(Setting(level=level))), None)
    if level is None:
        return None
    if level == "off":
        message = "it fails without any optimisation: the graph or a kernel is at fault"
        return OptimizerBlame(level=level, optimizers=[], message=message)

    def passes_without(disabled: Sequence[str]) -> bool:
        return not fails(Setting(level=level, disabled=tuple(disabled)))

    if not passes_without(names):
        message = (
            f"it fails from level {level} on, but with none of the {len(names)} optimisers that "
            "can be left out; kernels chosen at that level may be at fault"
        )
        return OptimizerBlame(level=level, optimizers=[], message=message)
    guilty = _smallest(list(names), [], passes_without)
    message = f"it fails from level {level} on, and not without {' and '.join(guilty)}"
    return OptimizerBlame(level=level, optimizers=guilty, message=message)


def _smallest(
    suspects: list[str], kept: list[str], enough: Callable[[Sequence[str]], bool]
) -> list[str]:
    """A smallest part of ``suspects`` that, together with ``kept``, is ``enough``.

    By halves: one half may do; otherwise both hold something, each sought beside the other.
    """
    if len(suspects) == 1:
        return suspects
    middle = len(suspects) // 2
    first, second = suspects[:middle], suspects[middle:]
    for half in (first, second):
        if enough([*kept, *half]):
            return _smallest(half, kept, enough)
    left = _smallest(first, [*kept, *second], enough)
    return left + _smallest(second, [*kept, *left], enough)


def available_levels() -> list[str]:
    """Those of :data:`LEVELS` that the installed ONNX Runtime has, from none to all."""
    import onnxruntime as ort

    return [name for name, key in LEVELS.items() if hasattr(ort.GraphOptimizationLevel, key)]


def output_fails(path: Path, inputs: Tensors, wrong: Callable[[Tensors], bool]) -> Fails:
    """The fault "``wrong`` says so of the outputs"; an input that does not run is one too.

    Args:
        path: the model, as it was exported.
        inputs: by name.
        wrong: judges the outputs by name, as a rule against float64.
    """

    def fails(setting: Setting) -> bool:
        session = open_optimized(path, setting)
        names = [value.name for value in session.get_outputs()]
        try:
            outputs = session.run(names, inputs)
        except Exception:  # ONNX Runtime's own kinds of error have no common base
            return True
        return wrong(dict(zip(names, outputs, strict=True)))

    return fails


def open_optimized(path: Path, setting: Setting, written: Path | None = None) -> Any:
    """An ``onnxruntime.InferenceSession`` of ``path`` on the CPU.

    Args:
        path: the model.
        setting: how to optimise it.
        written: where to write the optimised model, for :func:`first_departing_node`.

    Raises:
        ExportError: ONNX Runtime cannot load the model.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[setting.level])
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if written is not None:
        options.optimized_model_filepath = str(written)
    try:
        return ort.InferenceSession(
            str(path),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=list(setting.disabled),
        )
    except Exception as error:
        raise ExportError(f"ONNX Runtime cannot load {path.name}: {error}") from error
