"""The stamp of a later opset, and the node that it is for: what must be refused is."""

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from linattn_export.formats.one_node import settle
from linattn_export.formats.opset_stamp import require_same_meaning
from linattn_export.options.onnx_forms import FORMS
from linattn_runtime_checks.contract.errors import ExportError


def model(node: onnx.NodeProto, opset: int) -> ir.Model:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))


def test_an_operator_that_takes_other_things_later_is_not_restamped() -> None:
    """ReduceMean had its axes as an attribute until opset 18."""
    reduced = model(helper.make_node("ReduceMean", ["x"], ["y"], axes=[1]), 17)
    with pytest.raises(ExportError, match="ReduceMean changed between opset 17 and 27"):
        require_same_meaning(reduced, 17, 27, "here")


def test_an_operator_that_stays_the_same_is() -> None:
    require_same_meaning(model(helper.make_node("Relu", ["x"], ["y"]), 18), 18, 27, "here")


@pytest.mark.parametrize("form", ["ms", "std27"])
def test_a_graph_without_a_recurrence_is_no_form_of_one(form: str) -> None:
    with pytest.raises(ExportError, match="holds no recurrence to write as one node"):
        settle(model(helper.make_node("Relu", ["x"], ["y"]), 18), FORMS[form], 18, "here")
