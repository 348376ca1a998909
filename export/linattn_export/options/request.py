"""What a build is asked for: one dataclass whose fields are the flags of ``build``."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from linattn_export.options.onnx_forms import chosen_forms, parse_release
from linattn_export.options.releases import IR_OF_OPSET, smallest_onnxruntime
from linattn_export.options.variants import ENTRIES, PORTABLE, parse_range, positive, whole
from linattn_runtime_checks.contract.errors import UsageError, unknown
from linattn_runtime_checks.contract.flags import Off, flag, recorded

Dtype = Literal["fp32", "fp16"]
DTYPES = ("fp32", "fp16")
OPSETS = range(17, 24)
SEEDS = range(2**32)


def _dynamic_of(name: str, text: str) -> str:
    """The text itself, once it is known to be a range."""
    parse_range(name, text, fixed=False)
    return text


def _options_of(name: str, texts: list[str]) -> dict[str, dict[str, object]]:
    """``METHOD.FIELD=VALUE`` texts as a nested dictionary; values are read as Python writes them.

    Raises:
        UsageError: a text has another form.
    """
    found: dict[str, dict[str, object]] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        method, dot, option = key.partition(".")
        if not (separator and dot and method and option and value):
            raise UsageError(
                f"{name} must be METHOD.FIELD=VALUE, such as linformer.rank=64, got {text!r}"
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


def _option_texts(options: dict[str, dict[str, object]]) -> list[str]:
    return [
        f"{method}.{name}={value}"
        for method, fields in options.items()
        for name, value in fields.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One call of ``linattn-export build``; None or empty means the default.

    The metadata of each field says what it means and how it is written as a flag.
    """

    output: Path = field(
        default=Path("artifacts"),
        metadata=flag(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder to write.",
            about="folder to write; must be new, empty, or one that a build wrote.",
            told="-o",
            recorded="never",
        ),
    )
    methods: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "--method",
            "-m",
            metavar="NAME",
            help="Method (repeat) [six: list].",
            about="names in ``linattn.NAMES``; empty means all that are not causal.",
            without="module",
        ),
    )
    models: tuple[str, ...] = field(
        default=("layer",),
        metadata=flag(
            "--model",
            metavar="NAME",
            help="Model (repeat) [layer].",
            about="names in ``linattn_models.MODELS``.",
            recorded="always",
            without="module",
        ),
    )
    formats: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "--format",
            "-f",
            metavar="NAME",
            help="Format (repeat) [all].",
            about="``onnx``, ``torchscript``, ``pt2``; all by default.",
            told="-f",
        ),
    )
    lengths: tuple[int, ...] | None = field(
        default=None,
        metadata=flag(
            "--seq-len",
            "-n",
            metavar="N",
            help="Fixed length (repeat) [128 512 1024].",
            about="fixed sequence lengths besides the dynamic file; None means those of the model, "
            "``()`` none.",
            told="-n/--seq-len",
            off=Off(name="--no-fixed", value=(), help="No fixed variants."),
            read=positive,
        ),
    )
    dynamic: str | None = field(
        default=None,
        metadata=flag(
            "--dynamic",
            metavar="MIN:MAX",
            help="Lengths of the dynamic variant [1:4096].",
            about='``MIN:MAX`` of the dynamic variant, None for the model\'s own, "" for none.',
            off=Off(name="--no-dynamic", value="", help="No dynamic variant."),
            read=_dynamic_of,
            without="module",
        ),
    )
    batch: str | None = field(
        default=None,
        metadata=flag(
            "--batch",
            metavar="MIN:MAX",
            help="Batch sizes, or one fixed size [1:64].",
            without="module",
        ),
    )
    mask: bool | None = field(
        default=None,
        metadata=flag(
            "--mask/--no-mask",
            help="attention_mask as an input [no; langid: yes].",
            about="whether ``attention_mask`` is an input; None means the model's own choice.",
            without="module",
        ),
    )
    d_model: int | None = field(
        default=None,
        metadata=flag(
            "--d-model", metavar="M", help="Model width [256].", read=positive, without="module"
        ),
    )
    heads: int | None = field(
        default=None,
        metadata=flag("--heads", metavar="H", help="Heads [4].", read=positive, without="module"),
    )
    options: dict[str, dict[str, object]] = field(
        default_factory=dict,
        metadata=flag(
            "--option",
            metavar="METHOD.FIELD=VALUE",
            help="A method's option (repeat).",
            about="method name to field to value.",
            read=_options_of,
            write=_option_texts,
            without="module",
        ),
    )
    module: str | None = field(
        default=None,
        metadata=flag(
            "--module",
            metavar="PACKAGE.MODULE:FACTORY",
            help="A module of one's own, instead.",
            first=True,
            clash="`module` and {} exclude each other: the module is what its factory makes, and "
            "its sizes and masks are described by `inputs` SPEC",
        ),
    )
    inputs: Path | None = field(
        default=None,
        metadata=flag(
            "--inputs",
            metavar="SPEC",
            help="What --module takes: a TOML or JSON file.",
            first=True,
        ),
    )
    weights: Path | None = field(
        default=None,
        metadata=flag(
            "--weights",
            metavar="FILE",
            help="safetensors weights [fresh ones from the seed].",
        ),
    )
    seed: int = field(
        default=0,
        metadata=flag(
            "--seed",
            metavar="N",
            help="Of weights and inputs.",
            about="of fresh weights and of the inputs of the checks.",
            read=whole,
            recorded="always",
        ),
    )
    opset: int = field(
        default=18,
        metadata=flag(
            "--opset", metavar="N", help="ONNX opset, 17 to 23.", read=whole, recorded="always"
        ),
    )
    dtype: str = field(
        default="fp32",
        metadata=flag(
            "--dtype",
            metavar="NAME",
            help="fp32 or fp16.",
            about="``fp32`` or ``fp16``, of weights, floating-point inputs and outputs.",
            recorded="always",
        ),
    )
    entries: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "--entry",
            metavar="NAME",
            help="forward, prefill or step (repeat) [all that the method has].",
            without="module",
        ),
    )
    onnx_forms: tuple[str, ...] = field(
        default=(PORTABLE,),
        metadata=flag(
            "--onnx-form",
            metavar="NAME",
            help="portable, ms, std27 or auto (repeat) [portable]: recurrence.",
        ),
    )
    min_ort: str | None = field(
        default=None,
        metadata=flag(
            "--min-ort",
            metavar="RELEASE",
            help="Oldest ONNX Runtime that must load the files.",
            about="the oldest ONNX Runtime that must load the files; the form ``auto`` goes by it.",
            recorded="never",
        ),
    )
    check: bool = field(
        default=True,
        metadata=flag("--no-check", help="Do not judge (exit 5).", about="judge what was written."),
    )
    latency: bool = field(
        default=True,
        metadata=flag("--no-latency", help="Measure no latency.", about="time what was judged."),
    )
    runtimes: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "--runtime",
            metavar="NAME",
            help="Judge on this runtime (repeat) [all].",
            about="that judge; all that are available by default.",
        ),
    )
    memory_limit: float | None = field(
        default=None,
        metadata=flag(
            "--memory-limit",
            metavar="GIB",
            help="What the build, or a child, may take [what is free].",
            about="GiB that the build may take, and each child process; None means what is free.",
            recorded="never",
        ),
    )
    quiet: bool = field(
        default=False,
        metadata=flag(
            "--quiet",
            "-q",
            help="Print the verdict only.",
            about="say nothing on stderr but errors.",
            recorded="never",
        ),
    )
    verbose: bool = field(
        default=False,
        metadata=flag(
            "--verbose",
            "-v",
            help="Print memory and fixed variants' latencies too.",
            about="say on stderr how much memory the build will take.",
            recorded="never",
        ),
    )
    shrink: bool = True
    """Make the repro of a failure as small as it still fails; no flag, for calls from Python."""

    def __post_init__(self) -> None:
        if self.opset not in OPSETS:
            raise UsageError(
                f"`opset` must be {OPSETS[0]} to {OPSETS[-1]}, got {self.opset}; "
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
            raise UsageError(f"`seed` must be {SEEDS[0]} to {SEEDS[-1]}, got {self.seed}")
        for name in self.entries:
            if name not in ENTRIES:
                raise UsageError(unknown("entry", name, ENTRIES))
        object.__setattr__(self, "onnx_forms", chosen_forms(self.onnx_forms, self.min_ort))
        if self.min_ort is not None:
            since = smallest_onnxruntime(self.opset, IR_OF_OPSET[self.opset])
            if parse_release("", since) > parse_release("`min_ort`", self.min_ort):
                raise UsageError(
                    f"`opset={self.opset}` loads from ONNX Runtime {since} on, `min_ort` asks for "
                    f"{self.min_ort}; leave `opset` out: 18 loads from 1.15 on"
                )
        if self.memory_limit is not None and not 0 < self.memory_limit < math.inf:
            raise UsageError(f"`memory_limit` must be above 0, got {self.memory_limit:g}")
        for length in self.lengths or ():
            if length < 1:
                raise UsageError(f"`lengths` must be at least 1, got {length}")
        if self.inputs is not None and self.module is None:
            raise UsageError("`inputs` describes the module of `module`; name one, or leave it out")


def command_of(request: BuildRequest) -> list[str]:
    """The command line that makes the same folder, without paths of this machine.

    Files are named without their folders, so it is to be run from where they lie.
    """
    return ["linattn-export", "build", *recorded(request)]
