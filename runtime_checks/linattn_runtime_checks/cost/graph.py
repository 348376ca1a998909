"""Certify from its graph that the cost of an artifact is linear in the length of the sequence.

Every tensor of the graph is looked at: where none grows faster than the length, neither does the
memory, nor the time. A product of ``[M, K]`` and ``[K, N]`` takes ``M * K * N`` steps, and any two
of these are the axes of one of its three tensors; other operations visit their tensors once. What
this does not hold for, or whose inside cannot be seen, makes the certificate ``unknown``.

The sizes are those at lengths below 400 or at the lowest declared ones; a graph that changes its
ways at a greater length would be judged by these. Where sizes go up in blocks of tokens, they are
polynomials over lengths that are whole blocks apart.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.contract.manifest import Artifact, AxisRange, TensorSpec
from linattn_runtime_checks.cost import axes
from linattn_runtime_checks.cost.axes import Polynomial
from linattn_runtime_checks.cost.certificate import (
    CostCertificate,
    GrowingTensor,
    Survey,
    judge,
    kernel_may_grow,
    unknown,
)
from linattn_runtime_checks.cost.program import certify_program
from linattn_runtime_checks.cost.scan import Sizes, scan_doubts

__all__ = ["CostCertificate", "GrowingTensor", "certify_onnx", "certify_program"]

_LENGTHS, _FIRST, _STEP = 5, 37, 11  # 37, 48 .. 81: polynomials to the third power are confirmed
_BLOCK = 64
_HIDES_WORK = {"Attention", "DFT", "STFT", "DeformConv", "NonMaxSuppression"}
_CONVOLUTIONS = {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "FusedConv"}
# What ONNX Runtime puts for standard operations and whose work shows in its tensors.
_FUSED = {
    "BiasGelu",
    "BiasSoftmax",
    "FastGelu",
    "FusedGemm",
    "FusedMatMul",
    "Gelu",
    "LinearAttention",  # by its specification: token after token, a state of one size
    "QuickGelu",
    "ReorderInput",
    "ReorderOutput",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
}


def certify_onnx(path: Path, artifact: Artifact, *, optimized: bool = False) -> CostCertificate:
    """Run the file at a few small sizes, with every tensor as an output, and judge what it made.

    What the file says of its own shapes is not believed.

    Args:
        path: the .onnx file of ``artifact``.
        artifact: inputs and declared ranges.
        optimized: judge what ONNX Runtime makes of the file with all optimisations on, since a
            fusion may change the order of products. That may depend on the processor.

    Returns:
        The certificate; ``unknown`` with the reason where the graph could not be run or seen whole.

    Raises:
        ExportError: there is no such file, or it is not an ONNX model.
    """
    try:
        import onnx
        import onnx.inliner
        import onnxruntime  # noqa: F401
    except ImportError as error:
        return unknown(
            f"{error.name} cannot be imported; run: pip install 'linattn[export,cpu]' to certify"
        )
    try:
        model = onnx.load(str(path))
    except Exception as error:
        raise ExportError(
            f"{path.name} is not an ONNX model that can be read ({_first_line(error)}); "
            "build the folder again"
        ) from error
    try:
        if optimized:
            model = _optimised(path)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        seen = _run(model, artifact, _STEP)
        sizes = {name: _polynomials(shapes) for name, shapes in seen.items()}
        if not all(_known(shape) for shape in sizes.values()):
            seen = _run(model, artifact, _BLOCK)
            sizes = {name: _polynomials(shapes) for name, shapes in seen.items()}
    except Exception as error:
        what = "the optimised graph" if optimized else "the graph"
        return unknown(f"{what} cannot be run with every tensor as an output: {_first_line(error)}")
    weights = {weight.name: list(weight.dims) for weight in model.graph.initializer}
    # Integers are the shapes that reshapes go to: their length says nothing about any width.
    floating = [w.name for w in model.graph.initializer if w.data_type != onnx.TensorProto.INT64]
    survey = Survey(widths={width for name in floating for width in weights[name]})
    around: dict[str, Sequence[Polynomial | None] | None] = {**sizes}
    around |= {name: [axes.constant(size) for size in shape] for name, shape in weights.items()}
    survey.doubts.extend(_doubts(model.graph.node, weights, artifact, around))
    makers = {
        name: (_name(node), node.op_type) for node in model.graph.node for name in node.output
    }
    for name, shapes in seen.items():
        node, op = makers.get(name, (name, "input"))
        survey.add(name, node, op, sizes[name], list(shapes.values()))
    return judge(survey, artifact)


def _optimised(path: Path) -> Any:
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "optimised.onnx"
        _session(str(path), "ORT_ENABLE_ALL", written)
        return onnx.load(str(written))


def _session(model: str | bytes, level: str, written: Path | None = None) -> Any:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4  # failures arrive as exceptions; the log would repeat them
    if written is not None:
        settings.optimized_model_filepath = str(written)
    return ort.InferenceSession(
        model, settings, providers=["CPUExecutionProvider"], enable_fallback=0
    )


def _run(
    model: Any, artifact: Artifact, step: int
) -> dict[str, dict[tuple[int, int], tuple[int, ...] | None]]:
    """The shape of every tensor at each ``(batch, sequence)``; None for what is no tensor."""
    import onnx

    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    graph = exposed.graph
    del graph.value_info[:]
    known = {output.name for output in graph.output}
    made = [name for node in graph.node for name in node.output if name and name not in known]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    session = _session(exposed.SerializeToString(), "ORT_DISABLE_ALL")
    names = [output.name for output in session.get_outputs()]
    seen: dict[str, dict[tuple[int, int], tuple[int, ...] | None]] = defaultdict(dict)
    for batch in _batches(artifact.axis("batch")):
        for sequence in _lengths(artifact.axis("sequence"), step):
            inputs = {s.name: _random(s, batch, sequence) for s in artifact.inputs}
            outputs = session.run(names, inputs)
            for name, value in [*inputs.items(), *zip(names, outputs, strict=True)]:
                shape = getattr(value, "shape", None)
                seen[name][batch, sequence] = tuple(shape) if shape is not None else None
    return seen


def _lengths(axis: AxisRange, wanted: int) -> list[int]:
    """Lengths in arithmetic progression; odd ones among them, so that halves do not pass."""
    low, high = axis.declared
    count = min(_LENGTHS, high - low + 1)
    step = min(wanted, max((high - low) // max(count - 1, 1), 1))
    first = max(low, min(_FIRST, high - step * (count - 1)))
    return [first + step * i for i in range(count)]


def _batches(axis: AxisRange) -> list[int]:
    low, high = axis.declared
    return list(range(low, min(low + 1, high) + 1))


def _random(spec: TensorSpec, batch: int, sequence: int) -> NDArray[Any]:
    sizes = {"batch": batch, "sequence": sequence}
    shape = [sizes[axis] if isinstance(axis, str) else axis for axis in spec.shape]
    if spec.dtype == "bool":
        return np.ones(shape, dtype=bool)
    random = np.random.default_rng(0)
    if spec.dtype.startswith("int"):
        return random.integers(0, 2, shape).astype(spec.dtype)
    return random.standard_normal(shape).astype(spec.dtype)


def _polynomials(
    shapes: Mapping[tuple[int, int], tuple[int, ...] | None],
) -> list[Polynomial | None] | None:
    ranks = {None if shape is None else len(shape) for shape in shapes.values()}
    if len(ranks) != 1 or None in ranks:
        return None
    return [
        axes.interpolate({at: shape[i] for at, shape in shapes.items() if shape is not None})
        for i in range(ranks.pop() or 0)
    ]


def _known(shape: Sequence[Polynomial | None] | None) -> bool:
    return shape is not None and None not in shape


def _doubts(
    nodes: Iterable[Any], weights: Mapping[str, list[int]], artifact: Artifact, sizes: Sizes
) -> Iterator[str]:
    """Why the tensors of these nodes may not tell their whole cost."""
    for node in nodes:
        name = f"node {_name(node)} ({node.op_type})"
        if node.op_type == "Scan" and node.domain in ("", "ai.onnx"):
            yield from scan_doubts(node, name, sizes)
        elif any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            yield f"{name} has a body, whose tensors cannot be made outputs"
        elif node.op_type in _CONVOLUTIONS:
            kernel = node.input[3 if node.op_type == "QLinearConv" else 1]
            if kernel_may_grow(weights.get(kernel), artifact):
                yield f"{name} has a kernel that may grow with the length"
        elif node.domain in ("", "ai.onnx"):
            if node.op_type in _HIDES_WORK or (node.op_type == "Einsum" and len(node.input) > 2):
                yield f"{name} does work that its tensors do not show"
        elif node.op_type not in _FUSED:
            yield f"{name} of {node.domain} may do work that its tensors do not show"


def _name(node: Any) -> str:
    return node.name or f"of {', '.join(node.output)}"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
