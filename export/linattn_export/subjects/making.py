"""Makes the subjects of a build from the tables of models and methods."""

import torch
from torch import nn

from linattn import DEFAULT_METHODS, NAMES, MethodError, record_of
from linattn.pieces import with_heads_in_turn
from linattn_export.options.request import BuildRequest
from linattn_export.options.variants import (
    ENTRIES,
    PORTABLE,
    Entry,
    Range,
    Variant,
    make_variants,
    parse_range,
)
from linattn_export.subjects.subject import TORCH_DTYPES, Subject
from linattn_export.subjects.traits import traits_of
from linattn_export.subjects.weights import load_weights
from linattn_models import MODELS, Model, ModelError, ModelOptions
from linattn_runtime_checks.contract.errors import UsageError, unknown
from linattn_runtime_checks.contract.golden_pack import Origin

_BATCH = "1:64"


def make_subjects(request: BuildRequest) -> list[Subject]:
    """Everything that the request names, models outermost.

    Raises:
        UsageError: a name, option, size or weights file that cannot be used. Nothing was written.
    """
    for name in request.models:
        if name not in MODELS:
            raise UsageError(unknown("model", name, MODELS))
    for name in (*request.methods, *request.options):
        if name not in NAMES:
            raise UsageError(unknown("method", name, NAMES))
    pairs = [
        (MODELS[model], method)
        for model in dict.fromkeys(request.models)
        for method in dict.fromkeys(request.methods or MODELS[model].methods or DEFAULT_METHODS)
    ]
    for name in request.options:
        if name not in {method for _, method in pairs}:
            raise UsageError(f"`options` {name}.*: method {name} is not among those to build")
    return [
        subject for model, method in pairs for subject in _make_subjects(model, method, request)
    ]


def _make_subjects(model: Model, method: str, request: BuildRequest) -> list[Subject]:
    """One for each graph that was asked for, with the same module."""
    options = ModelOptions(
        method=method,
        method_options=request.options.get(method, {}),
        d_model=request.d_model,
        heads=request.heads,
    )
    if request.mask and not model.masks:
        raise UsageError(f"model {model.name} takes no attention_mask; leave out `mask=True`")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(request.seed)
            module = model.build(options)
        shipped = model.weights(method) if model.weights is not None else None
    except (MethodError, ModelError) as error:
        raise UsageError(str(error)) from error
    mask = model.masked if request.mask is None else request.mask
    path = request.weights or shipped
    if path is not None:
        load_weights(module, path, f"model {model.name} with method {method}")
    module = module.to(TORCH_DTYPES[request.dtype]).eval()
    variants = {
        graph: _variants(model, method, module, graph, request)
        for graph in _graphs(model, method, module, request)
    }
    with_heads_in_turn(module, max(v.sequence.high for found in variants.values() for v in found))
    return [
        Subject(
            model=model,
            method=method,
            graph=graph,
            module=module,
            mask=mask,
            dtype=TORCH_DTYPES[request.dtype],
            variants=found,
            seed=request.seed,
            traits=traits_of(method, positions=model.positions),
            origin=Origin(
                model=model.name,
                method=method,
                method_options=dict(options.method_options),
                d_model=request.d_model,
                heads=request.heads,
                dtype=request.dtype,
                mask=mask,
                entry=graph,
            ),
        )
        for graph, found in variants.items()
    ]


def _graphs(model: Model, method: str, module: nn.Module, request: BuildRequest) -> list[Entry]:
    """Those that were asked for; otherwise all that the model has with this method."""
    streams = model.streaming is not None and bool(model.streaming.states(module))
    known: tuple[Entry, ...] = ENTRIES if streams else ("forward",)
    for name in request.entries:
        if name not in known:
            recurrent = [n for n in NAMES if record_of(n).capabilities.recurrent]
            fix = (
                "it carries no state from token to token; use `entries=['forward']`, or a method "
                f"that does: {', '.join(recurrent)}"
                if not record_of(method).capabilities.recurrent
                else f"model {model.name} takes no state; use `entries=['forward']`, or "
                "`models=['layer']`"
            )
            raise UsageError(f"{model.name} with {method} has no entry {name}: {fix}")
    return [graph for graph in known if not request.entries or graph in request.entries]


def _variants(
    model: Model, method: str, module: nn.Module, graph: Entry, request: BuildRequest
) -> list[Variant]:
    if not record_of(method).capabilities.recurrent and set(request.onnx_forms) != {PORTABLE}:
        raise UsageError(
            f"`onnx_forms` {' '.join(request.onnx_forms)}: method {method} holds no recurrence, "
            "which is what the other forms are of; leave it out, or build it apart"
        )
    batch = parse_range("`batch`", request.batch or _BATCH, fixed=True)
    lengths = model.fixed_lengths if request.lengths is None else request.lengths
    dynamic: Range | None = Range(low=model.dynamic_lengths[0], high=model.dynamic_lengths[1])
    if request.dynamic is not None:
        dynamic = (
            parse_range("`dynamic`", request.dynamic, fixed=False) if request.dynamic else None
        )
    longest = model.max_length(module)
    asked = max([*lengths, *([dynamic.high] if dynamic else [])], default=0)
    if asked == 0:
        raise UsageError("`lengths=()` and `dynamic=''` together leave nothing to build")
    if longest is not None and asked > longest:
        asker = "`dynamic`" if dynamic is not None and dynamic.high == asked else "`lengths`"
        fix = (
            f", or raise it with `options={ {method: {'max_length': asked}} }`"
            if not record_of(method).capabilities.any_length and model.weights is None
            else ": the model was made for no more"
        )
        raise UsageError(
            f"{model.name} with {method} takes at most N_max = {longest} tokens, "
            f"{asker} asks for {asked}; ask for {longest} or fewer{fix}"
        )
    suffix = "" if request.dtype == "fp32" else f"-{request.dtype}"
    return make_variants(lengths, dynamic, batch, suffix, entry=graph, forms=request.onnx_forms)
