"""The commands that load an artifact, with its own names, types and shapes.

What stands between quotes is written by ``json.dumps``, which all these languages read; what names
a variable is made of letters, whatever the input is called.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from linattn_runtime_checks.contract.manifest import Artifact, TensorSpec

_EXAMPLE_LENGTH = 128
_RESERVED = {"input", "output", "session", "module", "program", "memory", "env", "np", "ort",
             "torch", "values", "shape", "main", "int", "float", "for", "new", "class",
             "const", "return", "default", "delete", "in", "if", "is", "lambda"}  # fmt: skip
_CPP_TYPES = {
    "float32": "float",
    "float16": "Ort::Float16_t",
    "bool": "bool",
    "int64": "int64_t",
    "int32": "int32_t",
}
_TORCH_TYPES = {
    "float32": "kFloat32",
    "float16": "kFloat16",
    "bool": "kBool",
    "int64": "kInt64",
    "int32": "kInt32",
}
_JS_TYPES = {"float32": "Float32Array", "float16": "Uint16Array", "bool": "Uint8Array",
             "int64": "BigInt64Array", "int32": "Int32Array"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A program, or why there is none: ``code`` is empty then."""

    language: str
    needs: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """An input as the programs need it."""

    name: str
    variable: str
    dtype: str
    shape: list[int]
    mask: bool


def snippets(artifact: Artifact) -> list[Snippet]:
    """Programs that load ``artifact`` and run it once, from within its folder."""
    inputs = [
        _Input(name=spec.name, variable=_variable(spec.name, index), dtype=spec.dtype,
               shape=example_shape(artifact, spec), mask=spec.is_mask)
        for index, spec in enumerate(artifact.inputs)
    ]  # fmt: skip
    return [write(artifact, inputs) for write in _WRITERS.get(artifact.format, ())]


def example_shape(artifact: Artifact, spec: TensorSpec) -> list[int]:
    """A shape that the artifact takes: its shortest batch, and some 128 tokens if it can."""
    sizes = {}
    for axis in artifact.axes:
        low, high = axis.declared
        wanted = _EXAMPLE_LENGTH if axis.name == "sequence" else low
        sizes[axis.name] = min(max(low, wanted), high)
    return [axis if isinstance(axis, int) else sizes.get(axis, 1) for axis in spec.shape]


def _variable(name: str, index: int) -> str:
    return (
        name
        if re.fullmatch(r"[a-z][a-z_0-9]*", name) and name not in _RESERVED
        else (f"input_{index}")
    )


def _quoted(text: str) -> str:
    return json.dumps(text)


def _numpy(item: _Input) -> str:
    if item.mask:
        return f"np.ones({tuple(item.shape)}, dtype=np.{item.dtype.replace('bool', 'bool_')})"
    return f"np.zeros({tuple(item.shape)}, dtype=np.{item.dtype})"


def _torch(item: _Input) -> str:
    make = "ones" if item.mask else "zeros"
    return f"torch.{make}({tuple(item.shape)}, dtype=torch.{item.dtype})"


def _count(item: _Input) -> str:
    return " * ".join(map(str, item.shape))


def _python_onnx(artifact: Artifact, inputs: list[_Input]) -> Snippet:
    feeds = [f"    {_quoted(item.name)}: {_numpy(item)}," for item in inputs]
    names = ", ".join(_quoted(spec.name) for spec in artifact.outputs)
    code = [
        "import numpy as np",
        "import onnxruntime as ort",
        "",
        "session = ort.InferenceSession(",
        f"    {_quoted(artifact.path)},",
        '    providers=["CPUExecutionProvider"],',
        ")",
        "inputs = {",
        *feeds,
        "}",
        f"outputs = session.run([{names}], inputs)",
        "print(outputs[0].shape)",
    ]
    return Snippet(language="Python", needs="onnxruntime, numpy", code="\n".join(code))


def _python_torch(opening: list[str]) -> Callable[[Artifact, list[_Input]], Snippet]:
    def write(artifact: Artifact, inputs: list[_Input]) -> Snippet:
        code = [
            "import torch",
            "",
            *(line.replace("PATH", _quoted(artifact.path)) for line in opening),
            "with torch.no_grad():",
            "    output = module(",
            *(f"        {_torch(item)},  # {_comment(item.name)}" for item in inputs),
            "    )",
            "print(output.shape)" if _is_single(artifact) else "print([o.shape for o in output])",
        ]
        return Snippet(language="Python", needs="torch", code="\n".join(code))

    return write


def _cpp_onnx(artifact: Artifact, inputs: list[_Input]) -> Snippet:
    code = [
        "#include <onnxruntime_cxx_api.h>",
        "#include <iostream>",
        "#include <memory>",
        "#include <vector>",
        "",
        "int main() {",
        "  Ort::Env env;",
        "  Ort::SessionOptions options;",
        f"  Ort::Session session(env, ORT_TSTR({_quoted(artifact.path)}), options);",
        "  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);",
        "  std::vector<Ort::Value> values;",
    ]
    for item in inputs:
        kind, shape = _CPP_TYPES.get(item.dtype, "float"), ", ".join(map(str, item.shape))
        code += [
            f"  std::vector<int64_t> {item.variable}_shape{{{shape}}};",
            f"  auto {item.variable} = std::make_unique<{kind}[]>({_count(item)});",
            f"  values.push_back(Ort::Value::CreateTensor<{kind}>(",
            f"      memory, {item.variable}.get(), {_count(item)},",
            f"      {item.variable}_shape.data(), {item.variable}_shape.size()));",
        ]
        if item.mask:  # zeros would mask every token
            code.append(f"  std::fill_n({item.variable}.get(), {_count(item)}, true);")
            code[1:1] = [] if "#include <algorithm>" in code else ["#include <algorithm>"]
    names = ", ".join(_quoted(item.name) for item in inputs)
    outputs = ", ".join(_quoted(spec.name) for spec in artifact.outputs)
    code += [
        f"  const char* inputs[] = {{{names}}};",
        f"  const char* outputs[] = {{{outputs}}};",
        "  auto results = session.Run(",
        "      Ort::RunOptions{}, inputs, values.data(), values.size(), outputs, "
        f"{len(artifact.outputs)});",
        "  for (auto size : results[0].GetTensorTypeAndShapeInfo().GetShape())",
        "    std::cout << size << ' ';",
        "}",
    ]
    return Snippet(language="C++", needs="ONNX Runtime", code="\n".join(code))


def _cpp_torch(artifact: Artifact, inputs: list[_Input]) -> Snippet:
    code = [
        "#include <torch/script.h>",
        "#include <iostream>",
        "",
        "int main() {",
        "  torch::NoGradGuard no_grad;",
        f"  auto module = torch::jit::load({_quoted(artifact.path)});",
        "  std::vector<torch::jit::IValue> inputs;",
    ]
    for item in inputs:
        make, shape = "ones" if item.mask else "zeros", ", ".join(map(str, item.shape))
        kind = _TORCH_TYPES.get(item.dtype, "kFloat32")
        code.append(f"  inputs.push_back(torch::{make}({{{shape}}}, torch::{kind}));"
                    f"  // {_comment(item.name)}")  # fmt: skip
    taken = "" if _is_single(artifact) else "toTuple()->elements()[0]."
    code += [f"  std::cout << module.forward(inputs).{taken}toTensor().sizes() << std::endl;", "}"]
    return Snippet(language="C++", needs="libtorch", code="\n".join(code))


def _javascript(artifact: Artifact, inputs: list[_Input]) -> Snippet:
    code = [
        'import * as ort from "onnxruntime-node";',
        "",
        f"const session = await ort.InferenceSession.create({_quoted(artifact.path)});",
        "const outputs = await session.run({",
    ]
    for item in inputs:
        array = f"new {_JS_TYPES.get(item.dtype, 'Float32Array')}({_count(item)})"
        one = "1n" if item.dtype == "int64" else "1"
        array += f".fill({one})" if item.mask else ""
        code.append(f"  {_quoted(item.name)}: new ort.Tensor("
                    f"{_quoted(item.dtype)}, {array}, {item.shape}),")  # fmt: skip
    first = _quoted(artifact.outputs[0].name) if artifact.outputs else '"output"'
    code += ["});", f"console.log(outputs[{first}].dims);"]
    return Snippet(language="JavaScript", needs="onnxruntime-node, as an .mjs file",
                   code="\n".join(code))  # fmt: skip


def _cpp_pt2(artifact: Artifact, inputs: list[_Input]) -> Snippet:
    needs = "libtorch has no loader for a torch.export program: take the onnx or torchscript file"
    return Snippet(language="C++", needs=needs, code="")


def _is_single(artifact: Artifact) -> bool:
    return len(artifact.outputs) == 1


def _comment(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


_WRITERS: dict[str, tuple[Callable[[Artifact, list[_Input]], Snippet], ...]] = {
    "onnx": (_python_onnx, _cpp_onnx, _javascript),
    "torchscript": (_python_torch(["module = torch.jit.load(PATH)"]), _cpp_torch),
    "pt2": (_python_torch(["program = torch.export.load(PATH)", "module = program.module()"]),
            _cpp_pt2),
}  # fmt: skip
