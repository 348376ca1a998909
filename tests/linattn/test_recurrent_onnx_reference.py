"""The recurrence against ONNX's LinearAttention: its reference evaluator, and ONNX Runtime.

Both compute in float32, whatever the tensors are.
"""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from linattn.numerics import by_head
from linattn.recurrent import chunked, recurrent_oracle
from recurrent_cases import SCALE, D, E, H, Inputs, Rule, draw, each_rule, error

SINGLE = 1e-6
"""In float32: a few roundings of 6e-8, for each token that is still in the state."""
LENGTHS = (1, 7, 64, 65, 130)
INPUTS = ("query", "key", "value", "past_state", "decay", "beta")
STANDARD = ("", 27, 13)
CONTRIB = ("com.microsoft", 1, 8)


def packed(x: Inputs) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs of the node: heads in the last axis, the state as it is."""
    tensors = {**x.by_name(), "past_state": x.state}
    return {
        name: (tensor if name == "past_state" else tensor.flatten(2)).numpy()
        for name in INPUTS
        if (tensor := tensors[name]) is not None
    }


def one_node(rule: Rule, kind: tuple[str, int, int], heads: int = H) -> onnx.ModelProto:
    """A model that is one LinearAttention of a domain, in a version of it and of the format."""
    domain, version, ir_version = kind
    wanted = {"decay": bool(rule.decay), "beta": rule.delta}
    names = [name if wanted.get(name, True) else "" for name in INPUTS]
    update_rule = ("gated_" if rule.decay else "") + "delta"
    if not rule.delta:
        update_rule = "gated" if rule.decay else "linear"
    node = helper.make_node(
        "LinearAttention",
        names if rule.delta else names[: 5 if rule.decay else 4],
        ["output", "present_state"],
        domain=domain,
        q_num_heads=H,
        kv_num_heads=heads,
        update_rule=update_rule,
        scale=SCALE,
    )

    def value(name: str) -> onnx.ValueInfoProto:
        shape: list[str | int | None] = ["B", "T", None]
        if name.endswith("_state"):
            shape = ["B", heads, D, E]
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        [node],
        "one_node",
        [value(name) for name in names if name],
        [value("output"), value("present_state")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, version)]
    model = helper.make_model(
        graph, opset_imports=opsets if domain else opsets[1:], ir_version=ir_version
    )
    if not domain:
        onnx.checker.check_model(model, full_check=True)
    return model


def evaluated(model: onnx.ModelProto, x: Inputs) -> tuple[Tensor, Tensor]:
    output, state = ReferenceEvaluator(model).run(None, packed(x))
    return by_head(torch.as_tensor(output), H), torch.as_tensor(state)


@each_rule
@pytest.mark.parametrize("length", LENGTHS)
def test_the_recurrence_is_that_of_the_standard(rule: Rule, length: int) -> None:
    x = draw(rule, length)
    single = x.to(torch.float32)
    theirs = evaluated(one_node(rule, STANDARD), single)
    for mine in (
        recurrent_oracle(**x.by_name(), scale=SCALE),
        chunked(**x.by_name(), scale=SCALE),
        chunked(**single.by_name(), scale=SCALE),
    ):
        for found, expected in zip(mine, theirs, strict=True):
            assert error(found, expected.double()) < SINGLE


@each_rule
def test_a_key_head_serves_neighbours_there_too(rule: Rule) -> None:
    x = draw(rule, 65, heads=(H, 2, 2))
    x = x.changed(
        decay=None if x.decay is None else x.decay[:, :, :2],
        beta=None if x.beta is None else x.beta[:, :, :2],
        state=x.state[:, :2],
    )
    output, state = evaluated(one_node(rule, STANDARD, heads=2), x.to(torch.float32))
    # They have one state for each key head, we one for each query head.
    x = x.changed(state=x.state.repeat_interleave(H // 2, dim=1))
    for mine in (
        recurrent_oracle(**x.by_name(), scale=SCALE),
        chunked(**x.by_name(), scale=SCALE),
    ):
        assert error(mine[0], output.double()) < SINGLE
        assert error(mine[1], state.double().repeat_interleave(H // 2, dim=1)) < SINGLE


@each_rule
@pytest.mark.parametrize("kind", [STANDARD, CONTRIB], ids=["ai.onnx", "com.microsoft"])
@pytest.mark.parametrize("length", [1, 65])
def test_onnxruntime_computes_the_same(rule: Rule, kind: tuple[str, int, int], length: int) -> None:
    x = draw(rule, length)
    session = ort.InferenceSession(
        one_node(rule, kind).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    output, state = session.run(None, packed(x.to(torch.float32)))
    expected = recurrent_oracle(**x.by_name(), scale=SCALE)
    assert error(by_head(torch.as_tensor(output), H), expected[0]) < SINGLE
    assert error(torch.as_tensor(state), expected[1]) < SINGLE
