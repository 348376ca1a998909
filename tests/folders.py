"""What tests do to a copy of a folder that a build wrote, and how they read a report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from conftest import Outcome
from linattn_runtime_checks.contract.integrity import stored
from linattn_runtime_checks.contract.manifest import FILE_NAME

CHECK = "linattn_runtime_checks"
DYNAMIC = "layer/elu/onnx/dynamic"
FIXED = "layer/elu/onnx/n16"
SCRIPT = "layer/elu/torchscript/dynamic"
ONNX = f"{DYNAMIC}/model.onnx"
OTHER = "layer/linformer/onnx/dynamic"
# Half a second, where all runtimes and latency take ten.
QUICK = ("--runtime", "ort-cpu", "--no-latency")

Document = dict[str, Any]


def edit(folder: Path, change: Callable[[Document], object]) -> None:
    """Change the manifest of ``folder``."""
    path = folder / FILE_NAME
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def entry(document: Document, name: str) -> Document:
    """The artifact called ``name`` in a manifest or in a report."""
    found: Document = next(item for item in document["artifacts"] if item["id"] == name)
    return found


def only(folder: Path, *names: str) -> None:
    """Leave nothing but the named artifacts in the manifest."""

    def change(document: Document) -> None:
        document["artifacts"] = [entry(document, name) for name in names]

    edit(folder, change)


def report_of(done: Outcome) -> Document:
    """The report that ``--json`` printed, which must be all there is on stdout."""
    report: Document = json.loads(done.stdout)
    return report


def codes(report: Document, name: str) -> set[str]:
    """The codes of all findings about one artifact that are more than notes."""
    found = entry(report, name)
    findings = found["findings"] + [f for r in found["runtimes"] for f in r["findings"]]
    return {finding["code"] for finding in findings if finding["exit_code"]}


def judged(report: Document) -> set[str]:
    """The artifacts that some runtime compared."""
    return {
        artifact["id"]
        for artifact in report["artifacts"]
        if any(runtime["cases"] for runtime in artifact["runtimes"])
    }


def flip(path: Path) -> None:
    """Change one byte in the middle; the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def restamp(folder: Path, name: str) -> None:
    """Let the manifest vouch for the bytes that are there now."""
    edit(folder, lambda d: entry(d, name).update(stored(folder, entry(d, name)["path"])))


def alter(folder: Path, name: str, change: Callable[[onnx.ModelProto], None], *others: str) -> None:
    """Change the graph of an ONNX artifact, let the manifest vouch for it, drop all but others."""
    only(folder, name, *others)
    path = folder / name / "model.onnx"
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    restamp(folder, name)


def change_weight(value: Callable[[float], float]) -> Callable[[onnx.ModelProto], None]:
    """One element of the largest matrix becomes ``value`` of itself and the largest element."""

    def change(model: onnx.ModelProto) -> None:
        tensor = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        weights = numpy_helper.to_array(tensor).copy()
        weights[3, 5] += value(float(np.abs(weights).max()))
        tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))

    return change
