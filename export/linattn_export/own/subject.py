"""The subject of a module of one's own: what the pipeline exports and judges."""

import re
from collections.abc import Mapping

from torch import nn

from linattn import NAMES, record_of
from linattn.layers.base import RecurrentLayer
from linattn.recurrent.chunk import CHUNK
from linattn_export.live_module.kept import Kept
from linattn_export.live_module.reasons import Place
from linattn_export.options.request import BuildRequest
from linattn_export.options.variants import Variant, make_variants
from linattn_export.own.call import make_entry
from linattn_export.own.probe import probe
from linattn_export.own.spec import Inputs
from linattn_export.own.specs import specs_of
from linattn_export.subjects.subject import TORCH_DTYPES, Subject
from linattn_export.subjects.traits import Traits
from linattn_models import Model
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.contract.golden_pack import Origin
from linattn_runtime_checks.contract.manifest import Note

METHOD = "own"
"""Stands for the method of a module whose mathematics nobody has told."""


def make_subject(
    module: nn.Module, inputs: Inputs, request: BuildRequest, name: str, label: str
) -> Subject:
    """Describe ``module`` for the pipeline.

    Args:
        module: in eval mode and in the dtype of the request.
        inputs: its SPEC.
        request: of the build; seed, dtype, fixed lengths and forms are used.
        name: becomes a folder.
        label: where the module comes from, for the manifest.

    Raises:
        UsageError: the SPEC and the module contradict each other.
    """
    dtype = TORCH_DTYPES[request.dtype]
    specs = specs_of(inputs, request)
    kept = Kept(module)
    found = probe(module, inputs, specs, dtype, request.seed)
    _require_checkable(inputs, found.outputs)
    traits = traits_of_own(module, inputs)
    masked = any(spec.kind == "mask" for spec in specs)
    model = Model(
        name=safe_name(name),
        title=f"{name}, a module of one's own",
        build=lambda options: module,
        entry=lambda copied, mask, length: make_entry(
            copied, inputs, found.leaves, length, found.written
        ),
        inputs=lambda copied, mask: specs,
        output_axes=lambda copied: next(iter(found.outputs.values())),
        outputs=lambda copied: found.outputs,
        masks=masked,
        max_length=lambda copied: None,
        positions=True,
    )
    return Subject(
        model=model,
        method=METHOD,
        module=module,
        mask=masked,
        dtype=dtype,
        variants=_variants(inputs, request, traits),
        seed=request.seed,
        traits=traits,
        fixes_dtype=found.fixes_dtype,
        copied=found.copied,
        restore=kept.restore,
        notes=_notes(found.written),
        origin=Origin(
            model=model.name,
            method=METHOD,
            method_options={},
            module=label,
            d_model=None,
            heads=None,
            dtype=request.dtype,
            mask=masked,
        ),
    )


def _notes(written: Mapping[str, Place | None]) -> tuple[Note, ...]:
    return tuple(
        Note(
            code=Code.INPUT_WRITTEN,
            message=(
                f"the module writes into its input {name}"
                f"{'' if place is None else f' at {place}'}; what is written is not in the "
                "file, whose caller's tensor stays as it was"
            ),
        )
        for name, place in written.items()
    )


def _require_checkable(inputs: Inputs, outputs: Mapping[str, tuple[str | int, ...]]) -> None:
    """Refuse promises that nothing would hold the artifacts to."""
    promises = inputs.spec.promises
    along = [name for name, axes in outputs.items() if "sequence" in axes]
    if promises.causal and not along:
        raise UsageError(
            f"promises.causal: none of the outputs {', '.join(outputs)} has a sequence axis, so "
            "nothing could be checked; leave the promise out"
        )
    if promises.permutation_equivariant and len(along) < len(outputs):
        missing = next(name for name in outputs if name not in along)
        raise UsageError(
            f"promises.permutation_equivariant: output {missing!r} has no sequence axis; "
            "leave the promise out, or the output, with outputs = [..]"
        )
    if promises.nan_padding and not any(t.kind == "mask" for t in inputs.tables.values()):
        raise UsageError("promises.nan_padding: no input is a mask; leave the promise out")
    if promises.cost is not None and not inputs.has("sequence"):
        raise UsageError("promises.cost: no input has a sequence axis; leave the promise out")


def safe_name(name: str) -> str:
    """``MyNet`` as ``my_net``: a folder on every system."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"\W+", "_", words).strip("_").lower() or "module"


def traits_of_own(module: nn.Module, inputs: Inputs) -> Traits:
    """What the SPEC promises, and what is known of parts that are ours."""
    promises = inputs.spec.promises
    parts = list(module.modules())
    recurrent = any(isinstance(part, RecurrentLayer) for part in parts)
    records = map(record_of, NAMES)
    causal = tuple(record.config for record in records if record.capabilities.causal)
    return Traits(
        cost=promises.cost or "unknown",
        causal=promises.causal,
        equivariant=promises.permutation_equivariant,
        recurrent=recurrent,
        scans=recurrent or any(isinstance(getattr(p, "config", None), causal) for p in parts),
        divides_rows=True,
        block=CHUNK if recurrent else 0,
        nan_padding=promises.nan_padding,
        finite=promises.finite,
    )


def _variants(inputs: Inputs, request: BuildRequest, traits: Traits) -> list[Variant]:
    batch, sequence = inputs.ranges["batch"], inputs.ranges["sequence"]
    lengths = request.lengths or ()
    if not traits.recurrent and tuple(request.onnx_forms) != ("portable",):
        raise UsageError(
            f"`onnx_forms` {' '.join(request.onnx_forms)}: the module holds none of linattn's "
            "recurrent layers, which is what the other forms are of; leave it out"
        )
    if lengths and not inputs.has("sequence"):
        raise UsageError("`lengths`: no input has a sequence axis; leave it out")
    for length in lengths:
        if not sequence.low <= length <= sequence.high:
            raise UsageError(
                f"`lengths` {length} is outside of sequence = {str(sequence)!r} in the SPEC; "
                "ask for a length inside, or widen the range"
            )
    suffix = "" if request.dtype == "fp32" else f"-{request.dtype}"
    if not inputs.has("sequence"):
        return [Variant(name=f"any-batch{suffix}", sequence=sequence, batch=batch)]
    if sequence.fixed:
        return make_variants((sequence.low,), None, batch, suffix, forms=request.onnx_forms)
    dynamic = None if request.dynamic == "" else sequence
    if dynamic is None and not lengths:
        raise UsageError("`dynamic=''` leaves nothing to build; name lengths with `lengths`")
    return make_variants(lengths, dynamic, batch, suffix, forms=request.onnx_forms)
