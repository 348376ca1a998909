"""The GEMM floor: a graph of the matrix products of one layer and nothing else.

Input and output are those of the layer, so that handing tensors over costs the same. Between the
products there are only reshapes, which ONNX Runtime does without touching the data: where the
layer has to bring heads in front of tokens, the floor reads the same numbers as if they already
were. So it computes nothing useful, by the same number of multiplications in the same shapes:

    kernel methods   q, k, v = x W_q, x W_k, x W_v    c = k' [H, D, N] v [H, N, D]    y = (q c) W_o
    linformer        the same projections    s = E k, t = F v [R, M]    y = ((q s') t) W_o

The lengths are constants of the graph; E and F are inputs of the exact length.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.speed.layers import Array, Sizes


def write_floor(path: Path, length: int, sizes: Sizes, *, linformer: bool) -> None:
    """Write the floor of a kernel method (also of ``efficient``), or of Linformer."""
    heads, width, model = sizes.heads, sizes.width, sizes.d_model
    weights = {f"w_{name}": _weight(model, seed) for seed, name in enumerate("qkvo")}
    shapes = {
        "by_head": [heads, length, width],
        "by_head_transposed": [heads, width, length],
        "slots_transposed": [heads, width, sizes.rank],
        "slots": [heads, sizes.rank, width],
        "together": [1, length, model],
        "flat": [length, model],
    }
    nodes = [_product("hidden_states", f"w_{name}", name) for name in "qkv"]
    nodes.append(_reshape("q", "by_head", "query"))
    inputs = [_value("hidden_states", [1, length, model])]
    if linformer:
        inputs += [_value(name, [sizes.rank, length]) for name in ("E", "F")]
        nodes += [
            _reshape("k", "flat", "key"),
            _reshape("v", "flat", "value"),
            _product("E", "key", "s"),
            _product("F", "value", "t"),
            _reshape("s", "slots_transposed", "slots_key"),
            _reshape("t", "slots", "slots_value"),
            _product("query", "slots_key", "scores"),
            _product("scores", "slots_value", "attended"),
        ]
    else:
        nodes += [
            _reshape("k", "by_head_transposed", "key"),
            _reshape("v", "by_head", "value"),
            _product("key", "value", "context"),
            _product("query", "context", "attended"),
        ]
    nodes += [_reshape("attended", "together", "merged"), _product("merged", "w_o", "output")]
    used = {name for node in nodes for name in node.input}
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    initializers += [
        numpy_helper.from_array(np.array(shape, dtype=np.int64), name)
        for name, shape in shapes.items()
        if name in used
    ]
    output = _value("output", [1, length, model])
    graph = helper.make_graph(nodes, "floor", inputs, [output], initializers)
    model_proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    onnx.checker.check_model(model_proto, full_check=True)
    onnx.save(model_proto, path)


def floor_inputs(hidden_states: Array, sizes: Sizes, *, linformer: bool) -> dict[str, Array]:
    """What the floor of this length takes."""
    found = {"hidden_states": hidden_states}
    if linformer:
        length = hidden_states.shape[1]
        drawn = np.random.default_rng(1).standard_normal((2, sizes.rank, length), dtype=np.float32)
        found["E"], found["F"] = drawn * np.float32(sizes.rank**-0.5)
    return found


def multiplications(length: int, sizes: Sizes, *, linformer: bool) -> int:
    """Multiply-adds of the floor: what its time should be compared with."""
    projections = 4 * length * sizes.d_model**2
    if linformer:
        return projections + 4 * length * sizes.rank * sizes.d_model
    return projections + 2 * length * sizes.width * sizes.d_model


def _weight(model: int, seed: int) -> Array:
    drawn = np.random.default_rng(seed).standard_normal((model, model), dtype=np.float32)
    return drawn * np.float32(model**-0.5)


def _value(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _product(left: str, right: str, output: str) -> onnx.NodeProto:
    return helper.make_node("MatMul", [left, right], [output], name=f"product_{output}")


def _reshape(source: str, shape: str, output: str) -> onnx.NodeProto:
    return helper.make_node("Reshape", [source, shape], [output], name=f"view_{output}")
