"""Measures a setting: its faults, its right outputs, and how far these are from the line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.peers.faults import Inputs
from benchmarks.peers.rules import OWN, PEERS, Array, real_polygraphy
from benchmarks.peers.settings import LENGTHS, Setting
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.golden.writing import run_double, sensitivity_of
from linattn_export.inputs.drawing import draw
from linattn_export.subjects.perturb import moved
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import Error, compare, error_of, yardstick
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import SessionOptions

SEEDS = range(8)

Row = dict[str, Any]
Source = Callable[[Inputs], Array]


def in_onnx_runtime(subject: Subject, path: Path) -> Source:
    """The subject, exported to ``path`` and run by ONNX Runtime, optimiser on."""
    job = Job(subject=subject, variant=subject.variants[0], opset=18)
    FORMATS["onnx"].write(job, path)
    signature = dict(zip(("inputs", "outputs"), job.specs(), strict=True))
    artifact = Artifact.model_construct(format="onnx", **signature)  # type: ignore[arg-type]
    options = SessionOptions(mode="optimizer-on", threads=1)
    session = RUNTIMES["ort-cpu"].open(path, artifact, options)

    def call(inputs: Inputs) -> Array:
        return session.run({name: x.numpy() for name, x in inputs.items()})["output"]

    return call


def right_outputs(subject: Subject, path: Path) -> dict[str, Source]:
    """The sources of right outputs, by name."""

    def reversed_tokens(inputs: Inputs) -> Array:
        flipped = {name: inputs[name].flip(-2) for name in ("key", "value")}
        output: Array = subject.eager()(inputs | flipped).numpy()
        return output

    found: dict[str, Source] = {"ONNX Runtime": in_onnx_runtime(subject, path)}
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
        sensitivity = sensitivity_of(runs, inputs, expected)
        return inputs, eager, expected, yardstick(error_of(eager, expected), sensitivity)


def bench_of(setting: Setting) -> Bench:
    """Prepare a setting."""
    subject = setting.subject()
    reference = subject.double()
    perturbed = [moved(reference, subject.dtype, run) for run in range(3)]
    return Bench(setting, subject, reference, perturbed)


@torch.no_grad()
def measure(
    bench: Bench, sources: dict[str, Source], lengths: Sequence[int] = LENGTHS
) -> list[Row]:
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


def margins(bench: Bench, sources: dict[str, Source]) -> list[float | None]:
    """The multiples of ONNX Runtime's right output at the longest length, seed by seed."""
    found = []
    for seed in SEEDS:
        inputs, _, expected, allowed = bench.case(LENGTHS[-1], seed)
        output = sources["ONNX Runtime"](inputs)
        found.append(compare(output, expected, "float32", allowed).multiple)
    return found
