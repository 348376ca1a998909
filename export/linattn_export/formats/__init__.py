"""The table of formats: one file and one line each."""

from linattn_export.formats import onnx_graph, pt2, torchscript
from linattn_export.formats.base import Format

FORMATS: dict[str, Format] = {
    record.name: record for record in (onnx_graph.FORMAT, torchscript.FORMAT, pt2.FORMAT)
}
