"""``linattn-export inspect``: what an ONNX file, or a folder of artifacts, says of itself."""

import json as json_module
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from linattn_export.formats.one_node import OP
from linattn_export.options.onnx_forms import FORMS, Form, release
from linattn_export.options.releases import later, smallest_onnxruntime
from linattn_export.options.variants import PORTABLE
from linattn_runtime_checks.contract.errors import EnvironmentProblem, ExportError, UsageError
from linattn_runtime_checks.contract.manifest import FILE_NAME, read


def form_of(model: Any) -> Form | None:
    """How an ONNX file holds a recurrence; None where it holds none that we know of."""
    for node in model.graph.node:
        if node.op_type == OP:
            domain = "" if node.domain == "ai.onnx" else node.domain
            forms = (form for form in FORMS.values() if form.name != PORTABLE)
            return next((form for form in forms if form.domain == domain), None)
    stamped = {item.key: item.value for item in model.metadata_props}.get("linattn.form", "")
    return FORMS.get(stamped)


def describe(path: Path) -> dict[str, Any]:
    """Everything about the ONNX file at ``path``.

    Raises:
        ExportError: it is not an ONNX file.
        EnvironmentProblem: the onnx package is missing.
    """
    try:
        import onnx
    except ImportError as error:
        raise EnvironmentProblem(
            "inspect reads ONNX files with the onnx package; run: pip install 'linattn[export]'"
        ) from error
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise ExportError(f"{path} is not an ONNX file that can be read: {error}") from error
    if not model.graph.node:
        raise ExportError(f"{path} is not an ONNX file: it holds no graph")
    opsets = {item.domain or "ai.onnx": item.version for item in model.opset_import}
    form = form_of(model)
    smallest = smallest_onnxruntime(opsets.get("ai.onnx", 0), model.ir_version)
    if form is not None:
        smallest = later(smallest, release(form.since))
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opsets": opsets,
        "ir_version": model.ir_version,
        "smallest_onnxruntime": smallest,
        "form": None if form is None else form.name,
        "loads_in": _loads_in(smallest, form),
        "inputs": [_tensor(value) for value in model.graph.input],
        "outputs": [_tensor(value) for value in model.graph.output],
        "nodes": len(model.graph.node),
        "operators": dict(Counter(node.op_type for node in model.graph.node).most_common()),
        "metadata": {item.key: item.value for item in model.metadata_props},
    }


def _loads_in(smallest: str, form: Form | None) -> dict[str, str]:
    found = {"ONNX Runtime": f"{smallest} and later"}
    if form is not None:
        found |= {"Node.js": form.node, "browser": form.browser, "OpenVINO": form.openvino}
    return found


def _tensor(value: Any) -> dict[str, Any]:
    import onnx

    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = [axis.dim_param or axis.dim_value for axis in tensor.shape.dim]
    return {"name": value.name, "dtype": str(dtype), "shape": shape}


def show_inspection(path: Path, *, json: bool) -> None:
    """Print what ``path`` says of itself, to stdout."""
    if path.is_dir():
        document = read(path).model_dump(mode="json")
        lines = _folder_lines(document)
    elif path.suffix in (".pt", ".pt2"):
        raise UsageError(
            f"{path} runs code when it is loaded, so inspect does not; "
            f"inspect the folder that holds {FILE_NAME} instead"
        )
    elif not path.is_file():
        raise UsageError(f"no such file or folder: {path}")
    else:
        document = describe(path)
        lines = _file_lines(document)
    if json:
        print(json_module.dumps(document, indent=2))
        return
    console = Console(highlight=False)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _file_lines(document: dict[str, Any]) -> list[str]:
    opsets = ", ".join(f"{domain} {version}" for domain, version in document["opsets"].items())
    lines = [
        f"file       {document['file']}, {document['bytes']} bytes",
        f"producer   {document['producer']}",
        f"opset      {opsets}; IR {document['ir_version']}",
        f"loads in   ONNX Runtime {document['smallest_onnxruntime']} and later",
    ]
    if document["form"] is not None:
        title = FORMS[document["form"]].title
        lines.insert(3, f"form       {document['form']}: {title}")
        others = [(name, text) for name, text in document["loads_in"].items()][1:]
        lines += [f"           {name}: {text}" for name, text in others]
    for kind in ("inputs", "outputs"):
        for tensor in document[kind]:
            shape = ", ".join(map(str, tensor["shape"]))
            lines.append(f"{kind[:-1]:<10} {tensor['name']} {tensor['dtype']} [{shape}]")
    operators = ", ".join(f"{name} {count}" for name, count in document["operators"].items())
    lines.append(f"nodes      {document['nodes']}: {operators}")
    lines += [f"metadata   {name} = {value}" for name, value in document["metadata"].items()]
    if not document["metadata"]:
        lines.append("metadata   none: this file does not say what was verified")
    return lines


def _folder_lines(document: dict[str, Any]) -> list[str]:
    command = document["command"]
    made_by = "none: made by a call from Python" if command is None else " ".join(command)
    lines = [
        f"verdict    {document['verdict']}",
        f"tool       {document['tool']['name']} {document['tool']['version']}",
        f"command    {made_by}",
        f"artifacts  {len(document['artifacts'])}",
    ]
    for artifact in document["artifacts"]:
        axes = ", ".join(
            f"{axis['name']} {axis['declared'][0]}:{axis['declared'][1]}"
            for axis in artifact["axes"]
        )
        opset = (artifact["opsets"] or {}).get("ai.onnx")
        versions = f", opset {opset}, IR {artifact['ir_version']}" if opset else ""
        lines.append(
            f"  {artifact['id']:<40} {artifact['verdict']:<10} {artifact['bytes']} bytes, "
            f"{axes}{versions}"
        )
    return lines
