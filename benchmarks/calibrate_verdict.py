"""Measures the constants of the verdict rule: K and SENSITIVITY_FACTOR.

    python benchmarks/calibrate_verdict.py [--seeds N]

Right exports of every method are run on many inputs (lengths, scales, seeds, with and without a
mask) in ONNX Runtime with its optimiser off and on, in TorchScript and as ExportedProgram. For each
run it notes the error as a multiple of eager's error, of the sensitivity, and of the yardstick for
several factors. Then one weight is multiplied by 1 + delta, to find the smallest planted fault
that the rule rejects. Writes ``benchmarks/results/verdict_calibration.{json,md}``.
"""

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from linattn import METHODS
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.golden.writing import run_double, sensitivity_of
from linattn_export.inputs.drawing import draw
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_export.subjects.perturb import moved
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import (
    SENSITIVITY_FACTOR,
    Error,
    K,
    error_of,
)
from linattn_runtime_checks.results import environment
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Session, SessionOptions

LENGTHS = (1, 2, 7, 33, 64, 127, 257, 512)
FAMILIES = ("scale=0.001", "normal", "scale=30")
MASKED_FAMILIES = ("right-padding", "left-padding")
FACTORS = (1.0, 2.0, 3.0, 4.0)
DELTAS = tuple(10.0**-k for k in np.arange(1, 7.01, 0.25))
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Run:
    """One input through one runtime mode."""

    method: str
    model: str
    family: str
    length: int
    runtime: str
    error: Error
    eager: Error
    sensitivity: Error


def subjects(mask: bool) -> list[Subject]:
    """Every method as a bare method and as a layer."""
    request = BuildRequest(
        models=("attention", "layer"),
        dynamic="1:512",
        lengths=(),
        batch="1:8",
        mask=mask,
        d_model=64,
        heads=4,
        options={"linformer": {"rank": 64, "max_length": 512}},
    )
    return make_subjects(request)


def sessions(subject: Subject, folder: Path) -> Iterator[tuple[str, Session]]:
    """The subject in every runtime mode there is on a CPU."""
    job = Job(subject=subject, variant=subject.variants[0], opset=18)
    inputs, outputs = job.specs()
    for kind in FORMATS.values():
        path = folder / kind.file_name
        kind.write(job, path)
        artifact = Artifact.model_construct(inputs=inputs, outputs=outputs, format=kind.name)
        for runtime in RUNTIMES.values():
            if kind.name in runtime.formats and runtime.name != "ort-cuda":
                for mode in runtime.modes:
                    options = SessionOptions(mode=mode, threads=environment.cores())
                    yield f"{runtime.name} {mode}", runtime.open(path, artifact, options)


def runs_of(subject: Subject, seeds: int) -> Iterator[Run]:
    """All runs of one subject."""
    reference = subject.double()
    perturbed = [moved(reference, subject.dtype, run) for run in range(3)]
    eager = subject.eager()
    families = MASKED_FAMILIES if subject.mask else FAMILIES
    with tempfile.TemporaryDirectory() as folder:
        opened = list(sessions(subject, Path(folder)))
        for length in LENGTHS:
            for family in families:
                for seed in range(seeds):
                    inputs = draw(
                        subject.inputs,
                        {"batch": 2, "sequence": length},
                        family=family,
                        dtype=subject.dtype,
                        seed=seed,
                    )
                    expected = run_double(reference, inputs)
                    eager_error = error_of(eager(inputs).numpy(), expected)
                    sensitivity = sensitivity_of(perturbed, inputs, expected)
                    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
                    for name, session in opened:
                        got = session.run(arrays)["output"]
                        yield Run(
                            method=subject.method,
                            model=subject.model.name + (" masked" if subject.mask else ""),
                            family=family,
                            length=length,
                            runtime=name,
                            error=error_of(got, expected),
                            eager=eager_error,
                            sensitivity=sensitivity,
                        )


def multiple(run: Run, eager: float, factor: float) -> float:
    """The larger of the row and whole errors as multiples of the yardstick."""
    quotients = []
    for part in ("row", "whole"):
        error = getattr(run.error, part)
        allowed = max(eager * getattr(run.eager, part), factor * getattr(run.sensitivity, part))
        quotients.append(0.0 if error == 0 else error / allowed if allowed > 0 else np.inf)
    return float(max(quotients))


def smallest_faults(subject: Subject, part: int) -> dict[int, float]:
    """Per length, the smallest delta of one weight times (1 + delta) that the rule rejects.

    The weight is the largest of the query (``part`` 0) or value (2) projection of a layer; the
    next smaller delta passes.
    """
    reference = subject.double()
    perturbed = [moved(reference, subject.dtype, run) for run in range(3)]
    eager = subject.eager()
    found = {}
    for length in LENGTHS:
        sizes = {"batch": 2, "sequence": length}
        inputs = draw(subject.inputs, sizes, family="normal", dtype=subject.dtype, seed=0)
        expected = run_double(reference, inputs)
        eager_error = error_of(eager(inputs).numpy(), expected)
        sensitivity = sensitivity_of(perturbed, inputs, expected)
        rejected = float("inf")
        for delta in DELTAS:
            entry = copy.deepcopy(subject.entry())
            parameters = dict(entry.named_parameters())
            with torch.no_grad():
                flat = parameters["layer.in_proj_weight"].chunk(3)[part].view(-1)
                flat[flat.abs().argmax()] *= 1 + delta
                got = entry(*inputs.values()).numpy()
            error = error_of(got, expected)
            fault = Run("", "", "", length, "", error, eager_error, sensitivity)
            if multiple(fault, 1.0, SENSITIVITY_FACTOR) <= K:
                break
            rejected = delta
        found[length] = rejected
    return found


def summarise(runs: list[Run]) -> dict[str, Any]:
    """Quantiles of the multiples over all runs, and the largest per method."""

    def spread(values: list[float]) -> dict[str, float]:
        array = np.array(values)
        names = {"median": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
        return {name: float(np.percentile(array, q)) for name, q in names.items()}

    rules = {"error / eager": (1.0, 0.0), "error / sensitivity": (0.0, 1.0)}
    rules |= {f"error / max(eager, {f:g} sensitivity)": (1.0, f) for f in FACTORS}
    return {
        "runs": len(runs),
        "rules": {
            name: spread([multiple(run, eager, factor) for run in runs])
            for name, (eager, factor) in rules.items()
        },
        "by method": {
            method: spread(
                [multiple(r, 1.0, SENSITIVITY_FACTOR) for r in runs if r.method == method]
            )
            for method in METHODS
        },
        "by runtime": {
            name: spread([multiple(r, 1.0, SENSITIVITY_FACTOR) for r in runs if r.runtime == name])
            for name in sorted({r.runtime for r in runs})
        },
    }


def render(result: dict[str, Any]) -> str:
    """The Markdown page."""

    def table(title: str, rows: dict[str, dict[str, float]]) -> list[str]:
        names = list(next(iter(rows.values())))
        lines = ["", f"| {title} | " + " | ".join(names) + " |"]
        lines.append("|" + " --- |" * (len(names) + 1))
        for name, values in rows.items():
            lines.append(f"| {name} | " + " | ".join(f"{values[n]:.3g}" for n in names) + " |")
        return lines

    lines = [
        "# Calibration of the verdict",
        "",
        f"`python benchmarks/calibrate_verdict.py --seeds {result['seeds']}`: {result['runs']} "
        "runs of right exports (bare methods and layers, d_model 64, 4 heads, batch 2; lengths "
        f"{', '.join(map(str, LENGTHS))}; families {', '.join(FAMILIES + MASKED_FAMILIES)}), "
        f"{result['seconds']:.0f} s on {result['environment']['processor']}, "
        f"{result['environment']['cores']} cores, torch {result['environment']['torch']}, "
        f"onnxruntime {result['environment'].get('onnxruntime')}.",
        "",
        f"The rule in force: pass if error <= {K:g} x max(error of eager, "
        f"{SENSITIVITY_FACTOR:g} x sensitivity), for the worst row and for the whole tensor.",
    ]
    lines += table("multiple", result["rules"])
    lines += table("rule in force, by method", result["by method"])
    lines += table("rule in force, by runtime", result["by runtime"])
    faults = {
        name: {f"N={length}": delta for length, delta in found.items()}
        for name, found in result["smallest fault rejected"].items()
    }
    lines += [
        "",
        "Smallest planted fault that is still rejected: delta, where the largest weight of the "
        "query or value projection of a layer was multiplied by 1 + delta (steps of a factor 1.8; "
        "inf: even 0.1 passes, since over one token the weights of softmax-like methods are 1 "
        "whatever the query).",
    ]
    lines += table("layer, projection", faults)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=11)
    seeds: int = parser.parse_args().seeds
    torch.set_num_threads(environment.cores())
    start = time.monotonic()
    runs: list[Run] = []
    faults = {}
    for mask in (False, True):
        for subject in subjects(mask):
            runs += runs_of(subject, seeds)
            if subject.model.name == "layer" and not mask:
                faults[f"{subject.method}, query"] = smallest_faults(subject, 0)
                faults[f"{subject.method}, value"] = smallest_faults(subject, 2)
            print(f"{subject.name}{' masked' if mask else ''}: {len(runs)} runs", flush=True)
    result = summarise(runs) | {
        "seeds": seeds,
        "smallest fault rejected": faults,
        "environment": environment.describe(),
        "seconds": time.monotonic() - start,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "verdict_calibration.json").write_text(json.dumps(result, indent=2) + "\n")
    (RESULTS / "verdict_calibration.md").write_text(render(result))
    print(f"written to {RESULTS.name}/verdict_calibration.md")


if __name__ == "__main__":
    main()
