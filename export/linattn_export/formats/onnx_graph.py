"""ONNX, from the captured program."""

import contextlib
import functools
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from linattn.torch_internals import ONNX_IMPORTS, onnx_exporter, onnx_registry
from linattn_export.capture.recurrences import kept
from linattn_export.formats import onnx_recurrences, stable
from linattn_export.formats.base import Format, Job, Written
from linattn_export.formats.decomposition import as_traced, needs_none, promotes_nothing
from linattn_export.formats.ends import name_ends
from linattn_export.formats.folding import fold
from linattn_export.formats.one_node import settle, translations
from linattn_export.formats.opset17 import to_opset_17
from linattn_export.live_module.reasons import shown_place, why_not_translated
from linattn_export.options.onnx_forms import FORMS
from linattn_export.options.releases import IR_OF_OPSET, IR_VERSION
from linattn_export.options.variants import PORTABLE
from linattn_runtime_checks.contract.errors import ExportError, foreign
from linattn_runtime_checks.contract.manifest import TensorSpec
from linattn_runtime_checks.processes.progress import interrupts_wait

NATIVE_OPSET = 18
_PROTOBUF_LIMIT = 2**31 - 2**24
"""Bytes of weights in one file; protobuf takes 2 GiB, and the graph needs some of it."""


def write(job: Job, path: Path) -> Written:
    """See Format.write."""
    with interrupts_wait():
        return _write(job, path)


def _write(job: Job, path: Path) -> Written:
    import onnx
    import onnx_ir as ir

    model = _translate(job)
    _clean(model, job)
    beside: tuple[str, ...] = ()
    held = sum(value.const_value.nbytes for value in model.graph.initializers.values())
    if held > _PROTOBUF_LIMIT:
        data = f"{path.name}.data"
        beside = (data,)
        ir.save(model, path, external_data=data)
    else:
        path.write_bytes(ir.to_proto(model).SerializeToString(deterministic=True))
    loaded = onnx.load(path, load_external_data=False)
    try:
        onnx.checker.check_model(str(path) if beside else loaded, full_check=True)
    except Exception as error:
        raise ExportError(
            f"{job.subject.name} as onnx {job.variant.name}: the checker refuses it: "
            f"{foreign(str(error))}"
        ) from error
    _require(job, loaded)
    histogram = Counter(node.op_type for node in loaded.graph.node)
    return Written(
        nodes=len(loaded.graph.node),
        op_histogram=dict(sorted(histogram.items())),
        opsets={item.domain or "ai.onnx": item.version for item in loaded.opset_import},
        ir_version=loaded.ir_version,
        side_files=beside,
        notes=job.notes,
    )


def _translate(job: Job) -> Any:
    inputs, outputs = job.specs()
    captured = job.program
    if (node := onnx_recurrences.projected(captured)) is not None:
        raise ExportError(
            f"{job.subject.name} cannot be translated to ONNX as {job.variant.name}: an LSTM with "
            f"proj_size{shown_place(captured, node)}, which ONNX does not have; use hidden_size "
            "alone and a Linear after it, or leave onnx out with `formats`"
        )
    one_node = job.variant.form != PORTABLE
    try:
        with _exporter(), kept(), torch.no_grad():  # a scan is otherwise made ready for training
            program = torch.onnx.export(
                captured,
                (),
                input_names=[spec.name for spec in inputs],
                output_names=[spec.name for spec in outputs],
                # torch's own way down to 17 fails on some operators and prints its traceback, and
                # the one up to 27 keeps 18 with a remark.
                opset_version=NATIVE_OPSET if one_node else max(job.opset, NATIVE_OPSET),
                custom_translation_table=translations() if one_node else None,
                dynamo=True,
                external_data=False,
                optimize=False,
                verbose=False,
            )
    except Exception as error:
        known = _registry().is_registered
        raise ExportError(
            f"{job.subject.name} cannot be translated to ONNX as {job.variant.name}: "
            f"{why_not_translated(error, captured, known) or foreign(str(error))}"
        ) from error
    assert program is not None
    fold(program.model)
    name_ends(program.model, [spec.name for spec in inputs], [spec.name for spec in outputs])
    where = f"{job.subject.name} as onnx {job.variant.name}"
    if one_node:
        settle(program.model, FORMS[job.variant.form], job.opset, where)
    elif job.opset == 17:
        to_opset_17(program.model, where)
    return program.model


def _clean(model: Any, job: Job) -> None:
    """Names, axes, versions and metadata as promised; nothing about the machine."""
    import onnx_ir as ir

    inputs, outputs = job.specs()
    symbols: dict[str, str] = {}
    for value, spec in zip(
        [*model.graph.inputs, *model.graph.outputs], [*inputs, *outputs], strict=True
    ):
        for found, wanted in zip(value.shape, spec.shape, strict=True):
            if isinstance(found, ir.SymbolicDim) and isinstance(wanted, str) and found.value:
                symbols[found.value] = wanted
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            _clean_value(value, symbols)
    for value in [*model.graph.inputs, *model.graph.initializers.values()]:
        _clean_value(value, symbols)
    model.graph.metadata_props.clear()
    model.graph.doc_string = None
    model.graph.name = job.subject.name.replace("/", "_")
    model.producer_name, model.producer_version = "linattn", job.metadata.get("linattn.version", "")
    model.doc_string = None
    form = FORMS[job.variant.form]
    model.ir_version = form.ir_version or IR_OF_OPSET.get(job.opset, IR_VERSION)
    model.metadata_props.clear()
    model.metadata_props.update(job.metadata)


def _clean_value(value: Any, symbols: dict[str, str]) -> None:
    import onnx_ir as ir

    value.metadata_props.clear()
    value.doc_string = None
    if value.shape is not None:
        value.shape = ir.Shape(
            [
                ir.SymbolicDim(symbols.get(axis.value or "", axis.value))
                if isinstance(axis, ir.SymbolicDim)
                else axis
                for axis in value.shape
            ]
        )


def stamp(path: Path, metadata: dict[str, str]) -> None:
    """Replace entries of a file's metadata_props; the graph keeps its bytes."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    graph = model.graph.SerializeToString(deterministic=True)
    kept = {item.key: item.value for item in model.metadata_props} | metadata
    onnx.helper.set_model_props(model, kept)
    path.write_bytes(model.SerializeToString(deterministic=True))
    again = onnx.load(path, load_external_data=False)
    if again.graph.SerializeToString(deterministic=True) != graph:
        raise ExportError(f"{path.name}: writing its metadata changed its graph")


def _require(job: Job, model: Any) -> None:
    """Compare the file with what was asked for: opset, IR, inputs, outputs, axes."""
    where = f"{job.subject.name} as onnx {job.variant.name}"
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    if opset != job.opset:
        raise ExportError(
            f"{where}: opset {job.opset} was asked for, the exporter wrote {opset}; "
            "use `opset=18`, which needs no conversion"
        )
    inputs, outputs = job.specs()
    for kind, promised, values in (
        ("inputs", inputs, model.graph.input),
        ("outputs", outputs, model.graph.output),
    ):
        found = [_spec(value) for value in values]
        declared = zip(promised, found, strict=False)
        if len(found) != len(promised) or not all(one.declares(other) for one, other in declared):
            raise ExportError(
                f"{where}: {kind} were asked for as {_shown(promised)}, "
                f"the file has {_shown(found)}"
            )


def _spec(value: Any) -> TensorSpec:
    import onnx

    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = [axis.dim_param or axis.dim_value for axis in tensor.shape.dim]
    return TensorSpec(name=value.name, dtype=str(dtype), shape=shape)


def _shown(specs: list[TensorSpec]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype} {spec.shape}" for spec in specs)


@functools.cache
def _registry() -> Any:
    registry = onnx_registry()
    for operator, translation in (onnx_recurrences.translations() | stable.translations()).items():
        registry.register_op(operator, translation)
    return registry


@contextlib.contextmanager
def _exporter() -> Iterator[None]:
    """Torch's exporter, without its remarks, and without what it does anew at every export.

    It reads the table of operators from onnxscript's sources, and runs the program again, twice:
    see ``decomposition``.
    """
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    registry = _registry()

    def undecomposed(program: ExportedProgram) -> ExportedProgram | None:
        return as_traced(program) if needs_none(program, registry) else None

    try:
        with onnx_exporter(registry, undecomposed, promotes_nothing), warnings.catch_warnings():
            # torch.onnx uses a pytree class that torch itself has deprecated.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def unavailable() -> str | None:
    """See Format.unavailable."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if not missing:
        return None
    return f"{' and '.join(missing)} not installed; run: pip install 'linattn[export]'"


FORMAT = Format(
    name="onnx",
    title="ONNX, one file, standard operators",
    file_name="model.onnx",
    unavailable=unavailable,
    write=write,
    forms=True,
    test_data=True,
    stamp=stamp,
    imports=(
        "onnx",
        "onnx_ir",
        "onnxscript.optimizer",
        "onnxscript.rewriter.onnx_fusions",
        *ONNX_IMPORTS,
    ),
)
