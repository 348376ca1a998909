"""The recurrence as graphs of one signature: in standard operators, and as one node.

All take and return packed tensors, as ONNX's LinearAttention does: query, key and value
``[B, N, H D]``, the state ``[B, H, D, D]``, decay ``[B, N, H]`` or ``[B, N, H D]``, beta
``[B, N, H]``.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.speed.layers import Array, Sizes
from linattn.methods.causal_elu import CausalEluAttention, CausalEluConfig
from linattn.recurrent import chunked
from linattn_export.capture.program import sizes_may_be_one

_MOST_TOKENS = 65536
_EPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``decay``: of each ``head`` or ``channel``, or none; ``update``: LinearAttention's word."""

    name: str
    update: str
    decay: str = ""

    @property
    def delta(self) -> bool:
        """Whether it corrects what the state holds."""
        return "delta" in self.update


RULES = (
    Rule(name="linear", update="linear"),
    Rule(name="gated, by head", update="gated", decay="head"),
    Rule(name="gated, by channel", update="gated", decay="channel"),
    Rule(name="delta", update="delta"),
    Rule(name="gated delta, by head", update="gated_delta", decay="head"),
    Rule(name="gated delta, by channel", update="gated_delta", decay="channel"),
)


def inputs_of(rule: Rule, length: int, sizes: Sizes) -> dict[str, Array]:
    """Numbers as layers make them: keys of unit length, logistic gates."""
    generator = np.random.default_rng(length)

    def normal(*shape: int) -> Array:
        return generator.standard_normal(shape).astype(np.float32)

    heads, width = sizes.heads, sizes.width
    key = normal(1, length, heads, width)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    found = {
        "query": normal(1, length, sizes.d_model),
        "key": key.reshape(1, length, sizes.d_model),
        "value": normal(1, length, sizes.d_model),
        "past_state": normal(1, heads, width, width),
    }
    if rule.decay:
        gates = normal(1, length, heads if rule.decay == "head" else sizes.d_model)
        found["decay"] = -np.logaddexp(0, -3 - gates).astype(np.float32)
    if rule.delta:
        beta = 1 / (1 + np.exp(-normal(1, length, heads)))
        found["beta"] = beta.astype(np.float32)
    return found


class Portable(nn.Module):
    """The recurrence in chunks, with packed tensors."""

    def __init__(self, rule: Rule, sizes: Sizes) -> None:
        super().__init__()
        self.rule, self.sizes = rule, sizes

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        past_state: Tensor,
        decay: Tensor | None = None,
        beta: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The output and the state after the last token."""
        if decay is not None and self.rule.decay == "channel":
            decay = self._heads(decay)
        output, state = chunked(
            self._heads(query),
            self._heads(key),
            self._heads(value),
            decay,
            beta,
            past_state,
            self.sizes.width**-0.5,
        )
        return output.flatten(2), state

    def _heads(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, 2, [self.sizes.heads, self.sizes.width])


def write_portable(path: Path, rule: Rule, sizes: Sizes) -> None:
    """In standard operators, opset 18, for any batch and length."""
    inputs = {name: torch.from_numpy(x) for name, x in inputs_of(rule, 100, sizes).items()}
    write_traced(path, Portable(rule, sizes), inputs)


def write_traced(path: Path, module: nn.Module, inputs: dict[str, Tensor], axis: int = 1) -> None:
    """Any module: batch and tokens, which are ``axis`` of all but the state, are dynamic."""
    batch, sequence = Dim("batch", min=1, max=8), Dim("sequence", min=1, max=_MOST_TOKENS)
    axes = {
        name: {0: batch} if name == "past_state" else {0: batch, axis: sequence} for name in inputs
    }
    with sizes_may_be_one(), torch.no_grad():
        program = torch.export.export(module.eval(), (), inputs, dynamic_shapes=axes)
    exported = torch.onnx.export(
        program, (), input_names=list(inputs), dynamo=True, opset_version=18, verbose=False
    )
    assert exported is not None
    exported.save(path)


class CumulativeSum(nn.Module):
    """Causal linear attention as public implementations have it: all N states at once.

    phi(k) v^T is summed along the tokens, ``[B, H, N, D, D]``, then multiplied by phi(q).
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Of ``[B, H, N, D]`` each."""
        query, key = nn.functional.elu(query) + 1, nn.functional.elu(key) + 1
        states = (key.unsqueeze(-1) * value.unsqueeze(-2)).cumsum(2)
        numerator = torch.einsum("bhnd,bhnde->bhne", query, states)
        denominator = torch.einsum("bhnd,bhnd->bhn", query, key.cumsum(2))
        return numerator / (denominator.unsqueeze(-1) + _EPS)


def causal_inputs(length: int, sizes: Sizes) -> dict[str, Array]:
    """Queries, keys and values by head, ``[1, H, N, D]``."""
    generator = np.random.default_rng(length)
    shape = (1, sizes.heads, length, sizes.width)
    return {
        name: generator.standard_normal(shape).astype(np.float32)
        for name in ("query", "key", "value")
    }


def write_causal(path: Path, sizes: Sizes, *, ours: bool) -> None:
    """Causal linear attention with elu + 1, as this package has it or by a cumulative sum."""
    module = CausalEluAttention(CausalEluConfig(eps=_EPS)) if ours else CumulativeSum()
    inputs = {name: torch.from_numpy(x) for name, x in causal_inputs(100, sizes).items()}
    write_traced(path, module, inputs, axis=2)


def write_operator(path: Path, rule: Rule, sizes: Sizes, *, standard: bool) -> None:
    """As one node: LinearAttention-27 of ONNX, or ``com.microsoft``'s in a file of opset 18."""
    names = list(inputs_of(rule, 1, sizes))
    heads, width = sizes.heads, sizes.width
    node = helper.make_node(
        "LinearAttention",
        [x if x in names else "" for x in (*names[:4], "decay", "beta")],
        ["output", "present_state"],
        domain="" if standard else "com.microsoft",
        q_num_heads=heads,
        kv_num_heads=heads,
        update_rule=rule.update,
        scale=width**-0.5,
    )
    last = {"past_state": width, "decay": heads if rule.decay == "head" else sizes.d_model}
    last["beta"] = heads

    def value(name: str) -> onnx.ValueInfoProto:
        state = name in ("past_state", "present_state")
        shape = ["batch", heads, width] if state else ["batch", "sequence"]
        width_of = width if state else last.get(name, sizes.d_model)
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [*shape, width_of])

    graph = helper.make_graph(
        [node], "g", [value(name) for name in names], [value("output"), value("present_state")]
    )
    opsets = [helper.make_opsetid("", 27 if standard else 18)]
    opsets += [] if standard else [helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=13 if standard else 8)
    onnx.save(model, path)
