"""What the examples' outputs are judged by: the golden pack of a folder and the verdict's rule."""

import importlib.util
from pathlib import Path
from types import ModuleType

from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.golden_pack import Case, Reference, Tensors
from linattn_runtime_checks.contract.verdict import Comparison, compare
from roots import ROOT

EXAMPLES = ROOT / "examples"
ARTIFACT = "layer/elu/onnx/dynamic"
SCRIPT = "layer/elu/torchscript/dynamic"
PACK = "layer/elu/reference.safetensors"
LONGEST, MOST = 64, 4  # tokens and sequences that were verified


def masked(form: str = "onnx") -> BuildRequest:
    """A tiny layer with a mask, in one format."""
    return BuildRequest(
        methods=("elu",),
        formats=(form,),
        lengths=(),
        dynamic=f"1:{LONGEST}",
        batch=f"1:{MOST}",
        mask=True,
        d_model=16,
        heads=2,
    )


LANGID = "langid/elu/onnx/dynamic"
LANGID_PACK = "langid/elu/reference.safetensors"
LANGID_LONGEST = 128  # bytes that were verified
LANGID_REQUEST = BuildRequest(
    models=("langid",),
    methods=("elu",),
    formats=("onnx",),
    lengths=(),
    dynamic=f"1:{LANGID_LONGEST}",
    batch="1:4",
)
"""The trained model that tells languages, as ONNX."""


def judge(pack: Reference, case: Case, outputs: Tensors) -> Comparison:
    """Judge ``outputs`` on ``case`` as ``linattn-check`` does."""
    expected = pack.outputs(case)
    assert outputs.keys() == expected.keys()
    return compare(outputs["output"], expected["output"], pack.index.dtype, case.yardstick())


def example_module(path: Path) -> ModuleType:
    """An example as a module, for tests that call its parts."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
