"""A subject: one model with one method and its weights, from which all its artifacts are made."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from linattn import StateSpec, at_length, record_of
from linattn.fixed_length import is_length_bound
from linattn_export.inputs.families import Directions, Family, applicable
from linattn_export.live_module.copies import as_double
from linattn_export.live_module.modes import evaluated
from linattn_export.options.variants import Entry, Variant
from linattn_export.subjects.perturb import PERTURBED_RUNS, moved
from linattn_export.subjects.traits import Traits
from linattn_export.subjects.widened import Widened, weights_of
from linattn_models import InputSpec, Model, Task
from linattn_runtime_checks.contract.golden_pack import Origin
from linattn_runtime_checks.contract.manifest import Note

OUTPUT = "output"
LARGE = 2**29
"""Bytes of weights."""
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
    traits: Traits
    fixes_dtype: bool = False
    """The module's own code spells out a dtype, and would not compute in float64."""
    copied: bool = True
    """The module can be copied; one with a lock or an open file in it cannot."""
    restore: Callable[[], object] = lambda: None
    """Takes back what a run of the module left behind in it."""
    notes: tuple[Note, ...] = ()
    """What is known of the module that no run of a file can show."""

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

    @property
    def is_own(self) -> bool:
        """Whether it is a module of one's own, of which only its SPEC and its runs tell."""
        return self.origin.module is not None

    def config(self, entry: nn.Module) -> dict[str, object]:
        """The method's config as ``entry`` holds it, for the manifest and the file's metadata."""
        if self.origin.module is not None:
            return {"module": self.origin.module}
        kind = record_of(self.method).config
        part = next(m for m in entry.modules() if type(getattr(m, "config", None)) is kind)
        config: Any = part.config
        return dataclasses.asdict(config)

    @cached_property
    def large(self) -> bool:
        """A module of one's own whose copies in float64 would not fit beside it."""
        held = sum(x.numel() * x.element_size() for x in weights_of(self.module))
        return self.is_own and held > LARGE

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
    def outputs(self) -> dict[str, tuple[str | int, ...]]:
        """Axes of the outputs by name, in order."""
        found: dict[str, tuple[str | int, ...]] = {OUTPUT: self.model.output_axes(self.module)}
        if self.model.outputs is not None:
            found = dict(self.model.outputs(self.module))
        for state in self.states:
            found[f"present_{state.name}"] = ("batch", *state.shape)
        return found

    @cached_property
    def task(self) -> Task | None:
        """Held-out data, where the model has a task."""
        return self.model.task() if self.model.task is not None else None

    def entry(self, length: int = 0) -> nn.Module:
        """The module to export for one length, 0 for any."""
        self.restore()
        bound = length > 0 and is_length_bound(self.module)
        module = at_length(self.module, length) if bound else self.module
        return self._wrapped(module, length)

    def double(self) -> nn.Module:
        """The entry for any length in float64: the reference.

        That of a step is a prefill, which computes the same in another way. A module that is large
        or cannot be copied is not: its operators are given float64 one by one.
        """
        self.restore()
        if self.large or not self.copied:
            return Widened(self._wrapped(self.module, 0))
        module = as_double(copy.deepcopy(self.module))
        if self.graph == "step" and self.model.streaming is not None:
            return self.model.streaming.prefill(module, False, 0).eval()
        entry = self._wrapped(module, 0)
        return Widened(entry) if self.fixes_dtype else entry

    def _wrapped(self, module: nn.Module, length: int) -> nn.Module:
        if self.graph == "forward":
            return evaluated(self.model.entry(module, self.mask, length))
        assert self.model.streaming is not None
        if self.graph == "step":
            return self.model.streaming.step(module).eval()
        return self.model.streaming.prefill(module, self.mask, length).eval()

    @cached_property
    def wide(self) -> nn.Module:
        """The module in float64."""
        return evaluated(as_double(copy.deepcopy(self.module)))

    @cached_property
    def perturbed(self) -> list[nn.Module]:
        """Float64 references whose weights were moved by rounding; see golden.py."""
        if self.large or not self.copied:
            return [Widened(self._wrapped(self.module, 0), moved=True)]
        reference = self.double()
        return [moved(reference, self.dtype, run) for run in range(PERTURBED_RUNS)]

    def reseeded(self, seed: int) -> "Subject":
        """The same with inputs of another seed; what does not depend on it is kept."""
        other = replace(self, seed=seed)
        for name in ("perturbed", "directions"):
            other.__dict__[name] = getattr(self, name)
        return other

    def eager(self) -> Callable[[dict[str, Tensor]], Any]:
        """The live entry as a function of inputs by name; several outputs make a tuple.

        The inputs stay as they are: an entry copies those that its module writes into.
        """
        entry, names = self.entry(), [spec.name for spec in self.inputs]

        def call(inputs: dict[str, Tensor]) -> Any:
            self.restore()
            with torch.no_grad():
                return entry(*(inputs[name] for name in names))

        return call
