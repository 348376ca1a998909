"""What a build is asked for: one dataclass whose fields are the flags of ``build``."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from linattn_export.options.onnx_forms import chosen_forms, parse_release
from linattn_export.options.releases import IR_OF_OPSET, smallest_onnxruntime
from linattn_export.options.variants import ENTRIES, PORTABLE
from linattn_runtime_checks.contract.errors import UsageError, unknown

Dtype = Literal["fp32", "fp16"]
DTYPES = ("fp32", "fp16")
OPSETS = range(17, 24)
SEEDS = range(2**32)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One call of ``linattn-export build``; None or empty means the default.

    Attributes:
        output: folder to write; must be new, empty, or one that a build wrote.
        methods: names in ``linattn.NAMES``; empty means all that are not causal.
        models: names in ``linattn_models.MODELS``.
        formats: names in ``linattn_export.formats.FORMATS``; empty means all.
        lengths: fixed lengths; None means those of the model, ``()`` none.
        dynamic: ``MIN:MAX`` of the dynamic variant, None for the model's own, "" for none.
        batch: ``MIN:MAX`` or one number, None for ``1:64``.
        mask: whether ``attention_mask`` is an input; None means the model's own choice.
        d_model: model width, None for the model's own.
        heads: number of heads, None for the model's own.
        options: method name to field to value.
        module: ``package.module:factory`` of a module of one's own, instead of models and methods.
        inputs: SPEC of what that module takes, TOML or JSON.
        weights: safetensors file with the parameters of the model.
        seed: of fresh weights and of the inputs of the checks.
        opset: of the ONNX files.
        dtype: of weights, inputs and outputs.
        entries: names in ``linattn_export.options.variants.ENTRIES``; empty means all that the
            method has.
        onnx_forms: names in ``linattn_export.options.onnx_forms.FORMS``, or ``auto``.
        min_ort: the oldest ONNX Runtime that must load the files; ``auto`` goes by it.
        check: judge what was written.
        latency: time what was judged.
        runtimes: names in ``linattn_runtime_checks.runtimes.RUNTIMES``; empty means all available.
        quiet: say nothing on stderr but errors.
        shrink: make the repro of a failure as small as it still fails.
        memory_limit: GiB that the build may take, and each child process; None means what is free.
        verbose: say on stderr how much memory the build will take.
    """

    output: Path = Path("artifacts")
    methods: tuple[str, ...] = ()
    models: tuple[str, ...] = ("layer",)
    formats: tuple[str, ...] = ()
    lengths: tuple[int, ...] | None = None
    dynamic: str | None = None
    batch: str | None = None
    mask: bool | None = None
    d_model: int | None = None
    heads: int | None = None
    options: dict[str, dict[str, object]] = field(default_factory=dict)
    module: str | None = None
    inputs: Path | None = None
    weights: Path | None = None
    seed: int = 0
    opset: int = 18
    dtype: str = "fp32"
    entries: tuple[str, ...] = ()
    onnx_forms: tuple[str, ...] = ("portable",)
    min_ort: str | None = None
    check: bool = True
    latency: bool = True
    runtimes: tuple[str, ...] = ()
    quiet: bool = False
    shrink: bool = True
    memory_limit: float | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.opset not in OPSETS:
            raise UsageError(
                f"--opset must be {OPSETS[0]} to {OPSETS[-1]}, got {self.opset}; "
                "18 loads in the most releases of ONNX Runtime"
            )
        if self.dtype not in DTYPES:
            hint = (
                "; bf16 cannot be judged: ONNX Runtime's CPU provider has no bf16 kernels"
                if self.dtype == "bf16"
                else ""
            )
            raise UsageError(unknown("dtype", self.dtype, DTYPES) + hint)
        if self.seed not in SEEDS:
            raise UsageError(f"--seed must be {SEEDS[0]} to {SEEDS[-1]}, got {self.seed}")
        for name in self.entries:
            if name not in ENTRIES:
                raise UsageError(unknown("entry", name, ENTRIES))
        object.__setattr__(self, "onnx_forms", chosen_forms(self.onnx_forms, self.min_ort))
        if self.min_ort is not None:
            since = smallest_onnxruntime(self.opset, IR_OF_OPSET[self.opset])
            if parse_release("", since) > parse_release("--min-ort", self.min_ort):
                raise UsageError(
                    f"--opset {self.opset} loads from ONNX Runtime {since} on, --min-ort asks for "
                    f"{self.min_ort}; leave --opset out: 18 loads from 1.15 on"
                )
        if self.memory_limit is not None and not 0 < self.memory_limit < math.inf:
            raise UsageError(f"--memory-limit must be above 0, got {self.memory_limit:g}")
        for length in self.lengths or ():
            if length < 1:
                raise UsageError(f"-n/--seq-len must be at least 1, got {length}")


def parse_options(texts: list[str]) -> dict[str, dict[str, object]]:
    """``METHOD.FIELD=VALUE`` flags as a nested dictionary; values are read as Python writes them.

    Raises:
        UsageError: a flag has another form.
    """
    found: dict[str, dict[str, object]] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        method, dot, option = name.partition(".")
        if not (separator and dot and method and option and value):
            raise UsageError(
                f"--option must be METHOD.FIELD=VALUE, such as linformer.rank=64, got {text!r}"
            )
        found.setdefault(method, {})[option] = _value(value)
    return found


def _value(text: str) -> object:
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def command_of(request: BuildRequest) -> list[str]:
    """The command line that makes the same folder, without paths of this machine.

    Files are named without their folders, so it is to be run from where they lie.
    """
    words = ["linattn-export", "build"]

    def add(flag: str, *values: object) -> None:
        for value in values:
            words.extend([flag, str(value)])

    if request.module is not None and request.inputs is not None:
        add("--module", request.module)
        add("--inputs", request.inputs.name)
    else:
        add("--method", *request.methods)
        add("--model", *request.models)
    add("--format", *request.formats)
    if request.lengths is not None:
        add("--seq-len", *request.lengths)
        words.extend([] if request.lengths else ["--no-fixed"])
    if request.dynamic is not None:
        words.extend(["--dynamic", request.dynamic] if request.dynamic else ["--no-dynamic"])
    if request.batch is not None:
        add("--batch", request.batch)
    if request.mask is not None:
        words.append("--mask" if request.mask else "--no-mask")
    for flag, value in (("--d-model", request.d_model), ("--heads", request.heads)):
        if value is not None:
            add(flag, value)
    for method, options in request.options.items():
        add("--option", *(f"{method}.{name}={value}" for name, value in options.items()))
    if request.weights is not None:
        add("--weights", request.weights.name)
    add("--seed", request.seed)
    add("--opset", request.opset)
    add("--dtype", request.dtype)
    add("--entry", *request.entries)
    if request.onnx_forms != (PORTABLE,):
        add("--onnx-form", *request.onnx_forms)
    words.extend([] if request.check else ["--no-check"])
    words.extend([] if request.latency else ["--no-latency"])
    add("--runtime", *request.runtimes)
    return words
