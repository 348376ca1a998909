"""What other tools' comparison rules say of wrong attention outputs, and of right ones.

    python benchmarks/peer_rules.py [--render]

Faults are planted in the methods; each rule is given PyTorch eager's output and the faulty one for
the same input. As a control it is given right outputs: ONNX Runtime's, and eager's with keys and
values in reverse order. Writes ``results/peer_rules.json`` and, from it, ``docs/peer_rules.md``
(``--render``: the page alone). Where ``polygraphy`` can be imported, the statement of its rule
given here is compared with the real one on every pair.
"""

import argparse
import copy
import importlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.onnx.verification import VerificationInfo

from linattn.numerics import elu_plus_one as phi
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.golden import moved, run_double, sensitivity_of
from linattn_export.inputs import draw
from linattn_export.request import BuildRequest
from linattn_export.subject import Subject, make_subjects
from linattn_runtime_checks import environment
from linattn_runtime_checks.manifest import Artifact
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import SessionOptions
from linattn_runtime_checks.verdict import Error, K, compare, error_of, yardstick

LENGTHS = (64, 512, 4096)
SEEDS = range(8)
RESULTS = Path(__file__).parent / "results" / "peer_rules.json"
PAGE = Path(__file__).parent.parent / "docs" / "peer_rules.md"

Array = NDArray[Any]
Inputs = dict[str, Tensor]
Row = dict[str, Any]
Sources = dict[str, Callable[[Inputs], Array]]


def torch_onnx(eager: Array, artifact: Array) -> bool:
    """`torch.onnx.export(verify=True)`, judged by torch's own `VerificationInfo`.

    Accuracy is reported bad where the largest absolute difference is >= 5e-3 or the largest
    relative one, to |eager| + 1e-7, is >= 1e-1 (torch 2.13.0,
    `torch/onnx/_internal/exporter/_core.py`, step 6, where a comment calls the threshold
    arbitrary). NaN is never >= a threshold, so it is reported good. A bad result is logged and
    the export goes on.
    """
    if eager.shape != artifact.shape:
        return False  # torch's subtraction raises, and it reports the run as failed
    pair = (torch.from_numpy(eager), torch.from_numpy(artifact))
    info = VerificationInfo.from_tensors("output", *pair)
    return not (info.max_abs_diff >= 5e-3 or info.max_rel_diff >= 1e-1)


def optimum_onnx(eager: Array, artifact: Array) -> bool:
    """`numpy.allclose(eager, artifact, atol=1e-5)`, with numpy's rtol of 1e-5 added to it.

    optimum-onnx 0.1.0, `optimum/exporters/onnx/convert.py`, line 391; the default atol is
    `ATOL_FOR_VALIDATION` in `optimum/exporters/base.py` of optimum 2.3.0. Values that are not
    close become a warning that the export succeeded; only a wrong shape raises.
    """
    return eager.shape == artifact.shape and bool(np.allclose(eager, artifact, atol=1e-5))


def timm(eager: Array, artifact: Array) -> bool:
    """`numpy.testing.assert_almost_equal(decimal=3)`: differences below 1.5e-3 pass.

    timm 1.0.31, `timm/utils/onnx.py`, line 179, run if `--check-forward` is given; it raises.
    """
    try:
        np.testing.assert_almost_equal(eager, artifact, decimal=3)
    except AssertionError:
        return False
    return True


def polygraphy(eager: Array, artifact: Array) -> bool:
    """An element is wrong where it exceeds atol 1e-5 and also rtol 1e-5; NaN exceeds both.

    Polygraphy 0.53.6, `polygraphy/comparator/compare.py`, `SimpleCompareFunc` with its default
    `elemwise`; eager is the second of the two, to which differences are relative. Exit status 1.
    """
    if eager.shape != artifact.shape:
        return False
    with np.errstate(invalid="ignore"):
        absolute = np.abs(artifact - eager)
        relative = absolute / np.abs(np.where(eager == 0, eager.dtype.type(2**-52), eager))
        return bool(((absolute <= 1e-5) | (relative <= 1e-5)).all())


PEERS = {
    "torch.onnx": torch_onnx,
    "optimum-onnx": optimum_onnx,
    "timm": timm,
    "Polygraphy": polygraphy,
}
OWN = "linattn"


def real_polygraphy() -> tuple[str, Callable[[Array, Array], bool]] | None:
    """The installed Polygraphy's version and its default comparison; None if there is none."""
    try:
        package = importlib.import_module("polygraphy")
        comparator = importlib.import_module("polygraphy.comparator")
        logger = importlib.import_module("polygraphy.logger").G_LOGGER
    except ImportError:
        return None

    def call(eager: Array, artifact: Array) -> bool:
        pair = [comparator.IterationResult({"output": x}) for x in (artifact, eager)]
        with logger.verbosity(logger.CRITICAL):
            return bool(comparator.SimpleCompareFunc()(*pair)["output"])

    return package.__version__, call


def kernel(q: Tensor, k: Tensor, v: Tensor, eps: float = 1e-6, scale: float = 1.0) -> Tensor:
    """Attention from features; faults are planted in what it is given."""
    return q @ (k.mT @ v) / (q @ k.sum(-2).unsqueeze(-1) * scale + eps)


def taylor(q: Tensor, k: Tensor, v: Tensor, count: int) -> Tensor:
    """Taylor attention that takes the number of tokens to be ``count``."""
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    return (v.sum(-2, keepdim=True) + q @ (k.mT @ v)) / (count + q @ k.sum(-2).unsqueeze(-1))


def blind(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Efficient attention that ignores the query."""
    return torch.softmax(0 * q, -1) @ (torch.softmax(k, -2).mT @ v)


def blind_elu(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Elu attention that ignores the query."""
    return kernel(phi(0 * q), phi(k), v)


def column(mask: Tensor, shift: int = 0) -> Tensor:
    """The mask, late by ``shift`` tokens, as a factor of keys and values."""
    return torch.roll(mask, shift, dims=1)[:, None, :, None].float()


def one_nan(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Elu attention with one element NaN."""
    output = kernel(phi(q), phi(k), v)
    output[0, 1, output.size(2) // 2, 3] = torch.nan
    return output


def scale_weight(entry: nn.Module, inputs: Inputs) -> None:
    """Multiply the largest weight of the value projection by 1.001."""
    values = entry.get_parameter("layer.in_proj_weight").chunk(3)[2].view(-1)
    values[values.abs().argmax()] *= 1.001


def swap_projections(entry: Any, inputs: Inputs) -> None:
    """Take E for F and F for E."""
    e, f = entry.attention.key_projection, entry.attention.value_projection
    entry.attention.key_projection, entry.attention.value_projection = f, e


def make_stale(entry: nn.Module, inputs: Inputs) -> None:
    """Answer with the output of the call before, which had another input."""
    generator = torch.Generator().manual_seed(1)
    inputs |= {name: torch.randn(x.shape, generator=generator) for name, x in inputs.items()}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A right module, its inputs, and the faults planted in it.

    ``forwards`` replace the forward of the method, ``edits`` change the module or its inputs;
    ``prepare`` changes what was drawn from N(0, 1), for eager and for the artifact alike.
    """

    method: str
    model: str = "attention"
    note: str = ""
    prepare: Callable[[Inputs], object] = len
    options: dict[str, Any] = field(default_factory=dict)
    forwards: dict[str, Callable[..., Tensor]] = field(default_factory=dict)
    edits: dict[str, Callable[[nn.Module, Inputs], None]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The module and what is special about it."""
        return f"{self.model}/{self.method}" + (f", {self.note}" if self.note else "")

    def subject(self) -> Subject:
        """The module, 4 heads of 64."""
        request = BuildRequest(
            models=(self.model,),
            methods=(self.method,),
            lengths=(),
            dynamic=f"1:{LENGTHS[-1]}",
            d_model=256,
            heads=4,
            mask="padding" in self.note,
            options={self.method: self.options} if self.options else {},
        )
        return make_subjects(request)[0]

    def outputs(self, subject: Subject, inputs: Inputs) -> Iterator[tuple[str, Array]]:
        """The outputs of all faults, by name."""
        for name in (*self.forwards, *self.edits):
            entry: Any = copy.deepcopy(subject.entry())
            changed = dict(inputs)
            if name in self.forwards:
                outer = entry.layer if self.model == "layer" else entry
                outer.attention.forward = self.forwards[name]
            else:
                self.edits[name](entry, changed)
            yield name, entry(*changed.values()).numpy()


SETTINGS = (
    Setting(
        method="softmax",
        forwards={
            "scale missing": lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v,
            "softmax over queries": lambda q, k, v: torch.softmax(q @ k.mT / 8, -2) @ v,
            "last token dropped": lambda q, k, v: (
                torch.softmax(q @ k[..., :-1, :].mT / 8, -1) @ v[..., :-1, :]
            ),
        },
    ),
    Setting(
        method="efficient",
        forwards={"query ignored": blind},
        edits={"output of the call before": make_stale},
    ),
    Setting(method="efficient", model="layer", forwards={"query ignored": blind}),
    Setting(
        method="elu",
        forwards={
            "query ignored": blind_elu,
            "normaliser dropped": lambda q, k, v: phi(q) @ (phi(k).mT @ v),
            "normaliser x 1.0001": lambda q, k, v: kernel(phi(q), phi(k), v, scale=1.0001),
            "products in bfloat16": lambda q, k, v: kernel(
                phi(q).bfloat16().float(), phi(k).bfloat16().float(), v.bfloat16().float()
            ),
            "NaN at one position": one_nan,
        },
    ),
    Setting(
        method="elu",
        note="last quarter is padding",
        prepare=lambda x: x["attention_mask"].chunk(4, dim=1)[3].zero_(),
        forwards={
            "mask on V only": lambda q, k, v, m: kernel(phi(q), phi(k), v * column(m)),
            "mask off by one": lambda q, k, v, m: kernel(
                phi(q), phi(k) * column(m, 1), v * column(m, 1)
            ),
        },
    ),
    Setting(
        method="elu",
        model="layer",
        forwards={"query ignored": blind_elu},
        edits={"one weight x 1.001": scale_weight},
    ),
    Setting(method="elu", note="normalize=False", options={"normalize": False}),
    Setting(
        method="relu",
        note="two queries without a positive feature",
        prepare=lambda x: x["query"][..., :2, :].abs_().neg_(),
        forwards={"eps dropped": lambda q, k, v: kernel(q.relu(), k.relu(), v, eps=0.0)},
    ),
    Setting(
        method="relu",
        note="query x 1e-8",
        prepare=lambda x: x["query"].mul_(1e-8),
        forwards={"eps 1e-15 for 1e-6": lambda q, k, v: kernel(q.relu(), k.relu(), v, eps=1e-15)},
    ),
    Setting(
        method="taylor",
        forwards={
            "length frozen at 24": lambda q, k, v: taylor(q, k, v, 24),
            "length off by one": lambda q, k, v: taylor(q, k, v, k.size(-2) + 1),
        },
    ),
    Setting(method="linformer", edits={"E and F swapped": swap_projections}),
)


def right_outputs(subject: Subject, path: Path) -> Sources:
    """The sources of right outputs, by name."""
    job = Job(subject=subject, variant=subject.variants[0], opset=18)
    FORMATS["onnx"].write(job, path)
    signature = dict(zip(("inputs", "outputs"), job.specs(), strict=True))
    artifact = Artifact.model_construct(format="onnx", **signature)  # type: ignore[arg-type]
    options = SessionOptions(mode="optimizer-on", threads=1)
    session = RUNTIMES["ort-cpu"].open(path, artifact, options)

    def onnx_runtime(inputs: Inputs) -> Array:
        return session.run({name: x.numpy() for name, x in inputs.items()})["output"]

    def reversed_tokens(inputs: Inputs) -> Array:
        flipped = {name: inputs[name].flip(-2) for name in ("key", "value")}
        return subject.eager()(inputs | flipped).numpy()

    found: Sources = {"ONNX Runtime": onnx_runtime}
    if subject.model.name == "attention" and subject.method != "linformer" and not subject.mask:
        found["eager, keys and values reversed"] = reversed_tokens
    return found


@dataclass(frozen=True)
class Bench:
    """A setting with its float64 reference and the runs moved by rounding."""

    setting: Setting
    subject: Subject
    reference: nn.Module
    perturbed: list[nn.Module]

    def case(self, length: int, seed: int) -> tuple[Inputs, Array, Array, Error]:
        """Inputs, eager's output, the float64 output and the yardstick."""
        subject = self.subject
        sizes = {"batch": 1, "sequence": length}
        inputs = draw(subject.inputs, sizes, family="normal", dtype=subject.dtype, seed=seed)
        self.setting.prepare(inputs)
        eager = subject.eager()(inputs).numpy()
        expected = run_double(self.reference, inputs)
        # As in a golden pack: one run moved by rounding is enough for a long sequence.
        runs = self.perturbed[: 1 if length > 1024 else 3]
        sensitivity = sensitivity_of(runs, inputs, expected, subject.dtype)
        return inputs, eager, expected, yardstick(error_of(eager, expected), sensitivity)


def bench_of(setting: Setting) -> Bench:
    """Prepare a setting."""
    subject = setting.subject()
    reference = subject.double()
    perturbed = [moved(reference, subject.dtype, run) for run in range(3)]
    return Bench(setting, subject, reference, perturbed)


@torch.no_grad()
def measure(bench: Bench, sources: Sources, lengths: tuple[int, ...] = LENGTHS) -> list[Row]:
    """Every fault of a setting and its right outputs, at every length."""
    real, rows = real_polygraphy(), []
    for length in lengths:
        inputs, eager, expected, allowed = bench.case(length, seed=0)
        outputs = [(name, True, y) for name, y in bench.setting.outputs(bench.subject, inputs)]
        outputs += [(name, False, call(inputs)) for name, call in sources.items()]
        for name, wrong, output in outputs:
            own = compare(output, expected, "float32", allowed)
            largest = float(np.abs(output - eager).max())
            rows.append(
                {
                    "setting": bench.setting.name,
                    "output": name,
                    "wrong": wrong,
                    "length": length,
                    "rms": float(np.sqrt(np.square(eager, dtype=np.float64).mean())),
                    "largest difference": None if np.isnan(largest) else largest,
                    "code": str(own.code),
                    "multiple": own.multiple,
                    "passes": {rule: judge(eager, output) for rule, judge in PEERS.items()}
                    | {OWN: own.passed},
                    "real polygraphy passes": real[1](eager, output) if real else None,
                }
            )
    return rows


def margins(bench: Bench, sources: Sources) -> list[float | None]:
    """The multiples of ONNX Runtime's right output at the longest length, seed by seed."""
    found = []
    for seed in SEEDS:
        inputs, _, expected, allowed = bench.case(LENGTHS[-1], seed)
        output = sources["ONNX Runtime"](inputs)
        found.append(compare(output, expected, "float32", allowed).multiple)
    return found


def table(title: str, rows: list[Row]) -> list[str]:
    """A Markdown table of pairs; what a rule gets wrong is in bold."""
    heads = [title, "N", "rms", "largest difference", *PEERS, OWN]
    lines = [
        "",
        f"| {' | '.join(heads)} |",
        "| --- |" + " ---: |" * 3 + " --- |" * (len(PEERS) + 1),
    ]
    for row in sorted(rows, key=lambda row: (row["setting"], row["output"], row["length"])):
        difference = row["largest difference"]
        cells = [
            f"{row['setting']}: {row['output']}",
            str(row["length"]),
            f"{row['rms']:.2g}",
            "NaN" if difference is None else f"{difference:.1e}",
        ]
        for passes in row["passes"].values():
            word = "passes" if passes else "rejects"
            cells.append(f"**{word}**" if passes is row["wrong"] else word)
        multiple = row["multiple"]
        cells[-1] += f" ({row['code']})" if multiple is None else f" ({multiple:.2g}x)"
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def render(result: dict[str, Any]) -> str:
    """The page."""
    rows, where = result["rows"], result["environment"]
    wrong = [row for row in rows if row["wrong"]]
    right = [row for row in rows if not row["wrong"]]
    faults = len({(row["setting"], row["output"]) for row in wrong})
    checked = "Polygraphy was not installed for this run: its rule is as stated here, unchecked."
    if result["polygraphy"]:
        agreed = sum(row["real polygraphy passes"] is row["passes"]["Polygraphy"] for row in rows)
        checked = (
            f"Polygraphy {result['polygraphy']} itself (`SimpleCompareFunc()`) gave the verdict "
            f"of the rule as stated here for {agreed} of {len(rows)} pairs."
        )
    versions = ", ".join(
        f"{name} {where[name]}" for name in ("python", "torch", "onnx", "onnxruntime", "numpy")
    )
    lines = [
        "# What fixed tolerances say of wrong attention",
        "",
        f"{faults} faults are planted in attention modules, each judged at N = "
        f"{', '.join(map(str, LENGTHS))} tokens. Every rule gets PyTorch eager's float32 output "
        "and the faulty one for the same input, drawn from N(0, 1), batch 1, 4 heads of 64. As a "
        "control it gets right outputs: ONNX Runtime's for the same module, optimiser on, and "
        "eager's with keys and values in reverse order, which changes only the order of sums.",
        "",
        "| rule | wrong outputs passed | faults passed at some N | right outputs rejected |",
        "| --- | ---: | ---: | ---: |",
    ]
    for rule in (*PEERS, OWN):
        missed = [row for row in wrong if row["passes"][rule]]
        some = len({(row["setting"], row["output"]) for row in missed})
        alarms = sum(not row["passes"][rule] for row in right)
        lines.append(
            f"| {rule} | {len(missed)} of {len(wrong)} | {some} of {faults} | "
            f"{alarms} of {len(right)} |"
        )
    alarmed = [row for row in right if not all(row["passes"].values())]
    seen = [row["multiple"] for row in wrong if row["multiple"] is not None]
    lines += ["", "## The rules", ""]
    lines += [f"- **{rule}**: {' '.join((f.__doc__ or '').split())}" for rule, f in PEERS.items()]
    lines += [
        f"- **{OWN}**: the error against float64 is at most {K:g} times what rounding costs this "
        "module on this input (`linattn_runtime_checks/verdict.py`; constants: "
        "[calibration](../benchmarks/results/verdict_calibration.md)). The multiple of that cost "
        f"is in brackets: above {K:g} rejects.",
        "",
        f"torch's, numpy's and {OWN}'s comparisons are the installed ones. {checked} "
        "optimum-onnx and timm are numpy calls with the arguments named above, read in their "
        "sources; the tools were not run.",
        "",
        "## Wrong outputs",
        "",
        "**passes** marks a wrong output that a rule lets through. rms is the size of eager's "
        "output; the largest difference is that of the faulty output to it.",
    ]
    lines += table("fault", wrong)
    lines += [
        "",
        "## Right outputs",
        "",
        f"**rejects** marks a false alarm. The other {len(right) - len(alarmed)} of {len(right)} "
        "right outputs pass every rule; they are in the JSON.",
    ]
    lines += table("source", alarmed)
    lines += [
        "",
        f"## How close {OWN} is",
        "",
        f"The smallest multiple of a wrong output above is {min(seen):.2g}, the largest of a right "
        f"one {max(row['multiple'] for row in right):.2g}; the line is at {K:g}. ONNX Runtime's "
        f"right output at N = {LENGTHS[-1]} with {len(SEEDS)} seeds of the input:",
        "",
        f"| setting | median multiple | largest | above {K:g} (false alarms) |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, multiples in sorted(result["margins"].items()):
        alarms = sum(multiple > K for multiple in multiples)
        lines.append(
            f"| {name} | {np.median(multiples):.2f} | {max(multiples):.2f} | "
            f"{f'**{alarms}**' if alarms else 0} of {len(multiples)} |"
        )
    lines += [
        "",
        "## How to read this",
        "",
        "Outputs of normalised attention shrink like 1/sqrt(N) while a tolerance stays, so a fault "
        "that is seen at N = 64 can pass at N = 4096. Outputs without a normaliser grow with N, "
        "and rounding alone exceeds the tolerance. A relative difference per element is large "
        "wherever an element happens to be near zero: torch.onnx rejects right outputs for it, "
        "and some wrong ones only for it. Gross faults, such as a query that is ignored, are seen "
        "by every rule here; what fixed tolerances pass is the subtle ones, and NaN in torch.onnx.",
        "",
        "The faults were chosen by this project, one seed each. The rules are the defaults: other "
        "tolerances can be set in optimum-onnx and Polygraphy. Here all rules see the same "
        "lengths; the tools themselves compare at the shape of the example input. "
        f"{OWN} needs a float64 run of the module, the others do not.",
        "",
        "## Made by",
        "",
        f"`python benchmarks/peer_rules.py`, seed 0, one thread, {versions}, {where['processor']}. "
        "Numbers: `benchmarks/results/peer_rules.json`.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--render", action="store_true", help="write the page from the numbers")
    if not parser.parse_args().render:
        torch.set_num_threads(1)
        real, rows, multiples = real_polygraphy(), [], {}
        for setting in SETTINGS:
            bench = bench_of(setting)
            with tempfile.TemporaryDirectory() as folder:
                sources = right_outputs(bench.subject, Path(folder) / "model.onnx")
                rows += measure(bench, sources)
                multiples[setting.name] = margins(bench, sources)
        result = {
            "environment": environment.describe(),
            "polygraphy": real[0] if real else None,
            "rows": rows,
            "margins": multiples,
        }
        RESULTS.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    PAGE.write_text(render(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
