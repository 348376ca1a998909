"""A subject: one model with one method and its weights, from which all its artifacts are made."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from linattn import DEFAULT_METHODS, NAMES, MethodError, StateSpec, at_length, record_of
from linattn_export.families import Directions, Family, applicable
from linattn_export.perturb import PERTURBED_RUNS, moved
from linattn_export.request import BuildRequest
from linattn_export.variants import (
    ENTRIES,
    PORTABLE,
    Entry,
    Range,
    Variant,
    make_variants,
    parse_range,
)
from linattn_export.weights import load_weights
from linattn_models import MODELS, InputSpec, Model, ModelError, ModelOptions, Task
from linattn_runtime_checks.errors import UsageError, unknown
from linattn_runtime_checks.reference import Origin

OUTPUT = "output"
TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is exported; ``module`` owns the parameters, in eval mode and in the dtype asked for.

    ``graph`` says which of the model's graphs: the whole sequence, or one that goes on from a
    state.
    """

    model: Model
    method: str
    graph: Entry = "forward"
    module: nn.Module
    mask: bool
    dtype: torch.dtype
    variants: list[Variant]
    seed: int
    origin: Origin

    @property
    def name(self) -> str:
        """``model/method``, which is also its place in the output folder."""
        return f"{self.model.name}/{self.method}"

    @property
    def key(self) -> str:
        """Unique among the subjects of a folder."""
        return self.name if self.graph == "forward" else f"{self.name}/{self.graph}"

    @property
    def reference(self) -> str:
        """The path of its golden pack."""
        kind = "reference" if self.graph == "forward" else f"reference-{self.graph}"
        return f"{self.name}/{kind}.safetensors"

    def config(self, entry: nn.Module) -> dict[str, object]:
        """The method's config as ``entry`` holds it, for the manifest and the file's metadata."""
        kind = record_of(self.method).config
        part = next(m for m in entry.modules() if type(getattr(m, "config", None)) is kind)
        config: Any = part.config
        return dataclasses.asdict(config)

    @property
    def states(self) -> list[StateSpec]:
        """What the graph takes and returns besides input and output."""
        if self.graph == "forward" or self.model.streaming is None:
            return []
        return list(self.model.streaming.states(self.module))

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The inputs of the entry, in order."""
        return self.model.inputs(self.module, self.masked) + tuple(
            InputSpec(name=f"past_{state.name}", axes=("batch", *state.shape), kind="state")
            for state in self.states
        )

    @property
    def masked(self) -> bool:
        """Whether the entry takes a mask; a step never does: its token is there."""
        return self.mask and self.graph != "step"

    @cached_property
    def directions(self) -> Directions:
        """Of the model's inputs, for the families of inputs that follow one."""
        return self.model.directions(self.module) if self.model.directions is not None else {}

    @property
    def families(self) -> list[Family]:
        """The families of inputs that make sense for the model, besides ``normal``."""
        return applicable(self.inputs, mask=self.masked, directions=self.directions)

    @property
    def equivariant(self) -> bool:
        """Whether reordering the tokens must reorder the outputs."""
        capable = record_of(self.method).capabilities.permutation_equivariant
        return capable and not self.model.positions

    @property
    def outputs(self) -> dict[str, tuple[str | int, ...]]:
        """Axes of the outputs by name, in order."""
        found: dict[str, tuple[str | int, ...]] = {OUTPUT: self.model.output_axes(self.module)}
        for state in self.states:
            found[f"present_{state.name}"] = ("batch", *state.shape)
        return found

    @cached_property
    def task(self) -> Task | None:
        """Held-out data, where the model has a task."""
        return self.model.task() if self.model.task is not None else None

    def entry(self, length: int = 0) -> nn.Module:
        """The module to export for one length, 0 for any."""
        module = at_length(self.module, length) if length else self.module
        return self._wrapped(module, length)

    def double(self) -> nn.Module:
        """The entry for any length in float64: the reference.

        That of a step is a prefill, which computes the same in another way.
        """
        module = copy.deepcopy(self.module).double()
        if self.graph == "step" and self.model.streaming is not None:
            return self.model.streaming.prefill(module, False, 0).eval()
        return self._wrapped(module, 0)

    def _wrapped(self, module: nn.Module, length: int) -> nn.Module:
        if self.graph == "forward":
            return self.model.entry(module, self.mask, length).eval()
        assert self.model.streaming is not None
        if self.graph == "step":
            return self.model.streaming.step(module).eval()
        return self.model.streaming.prefill(module, self.mask, length).eval()

    @cached_property
    def wide(self) -> nn.Module:
        """The module in float64."""
        return copy.deepcopy(self.module).double().eval()

    @cached_property
    def perturbed(self) -> list[nn.Module]:
        """Float64 references whose weights were moved by rounding; see golden.py."""
        reference = self.double()
        return [moved(reference, self.dtype, run) for run in range(PERTURBED_RUNS)]

    def reseeded(self, seed: int) -> "Subject":
        """The same with inputs of another seed; what does not depend on it is kept."""
        other = replace(self, seed=seed)
        for name in ("perturbed", "directions"):
            other.__dict__[name] = getattr(self, name)
        return other

    def eager(self) -> Callable[[dict[str, Tensor]], Any]:
        """The live entry as a function of inputs by name; several outputs make a tuple."""
        entry, names = self.entry(), [spec.name for spec in self.inputs]

        def call(inputs: dict[str, Tensor]) -> Any:
            with torch.no_grad():
                return entry(*(inputs[name] for name in names))

        return call


def make_subjects(request: BuildRequest) -> list[Subject]:
    """Everything that the request names, models outermost.

    Raises:
        UsageError: a name, option, size or weights file that cannot be used. Nothing was written.
    """
    for name in request.models:
        if name not in MODELS:
            raise UsageError(unknown("model", name, MODELS))
    methods = request.methods or DEFAULT_METHODS
    for name in (*methods, *request.options):
        if name not in NAMES:
            raise UsageError(unknown("method", name, NAMES))
    for name in request.options:
        if name not in methods:
            raise UsageError(f"--option {name}.*: method {name} is not among those to build")
    return [
        subject
        for model in dict.fromkeys(request.models)
        for method in dict.fromkeys(methods)
        for subject in _make_subjects(MODELS[model], method, request)
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
        raise UsageError(f"model {model.name} takes no attention_mask; leave out --mask")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(request.seed)
            module = model.build(options)
        shipped = model.weights(method) if model.weights is not None else None
    except (MethodError, ModelError) as error:
        raise UsageError(str(error)) from error
    path = request.weights or shipped
    if path is not None:
        load_weights(module, path, f"model {model.name} with method {method}")
    module = module.to(TORCH_DTYPES[request.dtype]).eval()
    return [
        Subject(
            model=model,
            method=method,
            graph=graph,
            module=module,
            mask=bool(request.mask),
            dtype=TORCH_DTYPES[request.dtype],
            variants=_variants(model, method, module, graph, request),
            seed=request.seed,
            origin=Origin(
                model=model.name,
                method=method,
                method_options=dict(options.method_options),
                d_model=request.d_model,
                heads=request.heads,
                dtype=request.dtype,
                mask=bool(request.mask),
                entry=graph,
            ),
        )
        for graph in _graphs(model, method, module, request)
    ]


def _graphs(model: Model, method: str, module: nn.Module, request: BuildRequest) -> list[Entry]:
    """Those that were asked for; otherwise all that the model has with this method."""
    streams = model.streaming is not None and bool(model.streaming.states(module))
    known: tuple[Entry, ...] = ENTRIES if streams else ("forward",)
    for name in request.entries:
        if name not in known:
            recurrent = [n for n in NAMES if record_of(n).capabilities.recurrent]
            fix = (
                "it carries no state from token to token; use --entry forward, or a method that "
                f"does: {', '.join(recurrent)}"
                if not record_of(method).capabilities.recurrent
                else f"model {model.name} takes no state; use --entry forward, or --model layer"
            )
            raise UsageError(f"{model.name} with {method} has no entry {name}: {fix}")
    return [graph for graph in known if not request.entries or graph in request.entries]


def _variants(
    model: Model, method: str, module: nn.Module, graph: Entry, request: BuildRequest
) -> list[Variant]:
    if not record_of(method).capabilities.recurrent and set(request.onnx_forms) != {PORTABLE}:
        raise UsageError(
            f"--onnx-form {' '.join(request.onnx_forms)}: method {method} holds no recurrence, "
            "which is what the other forms are of; leave the flag out, or build it apart"
        )
    batch = parse_range("--batch", request.batch, fixed=True)
    lengths = model.fixed_lengths if request.lengths is None else request.lengths
    dynamic: Range | None = Range(low=model.dynamic_lengths[0], high=model.dynamic_lengths[1])
    if request.dynamic is not None:
        dynamic = (
            parse_range("--dynamic", request.dynamic, fixed=False) if request.dynamic else None
        )
    longest = model.max_length(module)
    asked = max([*lengths, *([dynamic.high] if dynamic else [])], default=0)
    if asked == 0:
        raise UsageError("--no-fixed and --no-dynamic together leave nothing to build")
    if longest is not None and asked > longest:
        flag = "--dynamic" if dynamic is not None and dynamic.high == asked else "-n/--seq-len"
        fix = (
            f", or raise it with --option {method}.max_length={asked}"
            if not record_of(method).capabilities.any_length and model.weights is None
            else ": the model was made for no more"
        )
        raise UsageError(
            f"{model.name} with {method} takes at most N_max = {longest} tokens, "
            f"{flag} asks for {asked}; ask for {longest} or fewer{fix}"
        )
    suffix = "" if request.dtype == "fp32" else f"-{request.dtype}"
    return make_variants(lengths, dynamic, batch, suffix, entry=graph, forms=request.onnx_forms)
