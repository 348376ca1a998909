r"""Counts false alarms on right modules of one's own, over the inputs of many seeds.

    python -m benchmarks.own_modules --seeds 0:100 [--only NAME ...]

Each module of ``modules.py`` is exported once to ONNX with the first seed. For every further
seed its golden pack is written anew, as a build with that seed writes it, and the same file is
judged on it. Every finding whose exit code is not PASS is a false alarm, for the modules are
exported rightly. Each module and seed is one line of ``results/false_alarms_own.jsonl``, so that a
run can be cut short and taken up again; ``results/false_alarms_own.md`` sums them up.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.own_modules.modules import MODULES
from linattn_export import export_module
from linattn_export.build import pipeline
from linattn_export.golden import writing as golden
from linattn_runtime_checks.contract.codes import fails_nothing
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.judging.artifact import judge
from linattn_runtime_checks.processes.requests import Job
from linattn_runtime_checks.results.report import CaseResult, Finding
from linattn_runtime_checks.runtimes import RUNTIMES

RESULTS = Path(__file__).parents[1] / "results" / "false_alarms_own.jsonl"
_RUNTIME = "ort-cpu"
Row = dict[str, Any]


class Exported:
    """A module's folder, and how its golden pack is written for another seed."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        make, spec = MODULES[name]
        torch.manual_seed(11)
        self._name, self._folder = name, folder
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        write = golden.write_golden

        def noted(*arguments: Any, **named: Any) -> Any:
            calls.append((arguments, named))
            return write(*arguments, **named)

        # The subject is made inside of the build, and nothing else hands it out.
        vars(pipeline)["write_golden"] = noted
        try:
            report = export_module(
                make().eval(),
                spec,
                folder / "out",
                name=name,
                formats=["onnx"],
                seed=seed,
                latency=False,
                quiet=True,
            )
        finally:
            vars(pipeline)["write_golden"] = write
        ((self._subject, _, *self._others), named) = calls[0]
        self._named = {key: value for key, value in named.items() if key != "programs"}
        cases = [case for a in report.artifacts for r in a.runtimes for case in r.cases]
        self.first = _row(name, seed, cases, report.all_findings())

    def judged(self, seed: int) -> Row:
        """The same file on the pack of ``seed``."""
        torch.set_num_threads(1)
        pack = self._folder / f"pack-{seed}.safetensors"
        golden.write_golden(self._subject.reseeded(seed), pack, *self._others, **self._named)
        (artifact,) = read(self._folder / "out").artifacts
        job = Job(
            folder=str((self._folder / "out").resolve()),
            artifact=artifact,
            runtime=RUNTIMES[_RUNTIME].name,
            packs=[str(pack.resolve())],
            threads=1,
            measure_cost=False,
        )
        result = judge(job, lambda step: None)
        pack.unlink()
        return _row(self._name, seed, result.cases, result.findings)


def _row(name: str, seed: int, cases: list[CaseResult], findings: list[Finding]) -> Row:
    passed = [case for case in cases if fails_nothing(case.code) and case.multiple is not None]
    worst = max(passed, key=lambda case: case.multiple or 0.0, default=None)
    return {
        "module": name,
        "seed": seed,
        "cases": len(cases),
        "notes": sorted({f.code for f in findings if fails_nothing(f.code)}),
        "alarms": [f"{f.code}: {f.message}" for f in findings if not fails_nothing(f.code)],
        "multiple": 0.0 if worst is None else worst.multiple,
        "worst": "" if worst is None else worst.case,
    }


def run(name: str, seeds: list[int], note: Callable[[Row], None]) -> None:
    """The seeds of one module."""
    with tempfile.TemporaryDirectory(prefix="linattn-own-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of capture, which a build shows its user
        exported = Exported(name, Path(folder), seeds[0])
        note(exported.first)
        for seed in seeds[1:]:
            note(exported.judged(seed))


def page(rows: list[Row]) -> str:
    """The results as Markdown."""
    alarms = [f"- {r['module']}, seed {r['seed']}: {text}" for r in rows for text in r["alarms"]]
    lines = [
        "# False alarms on modules of one's own",
        "",
        "`python -m benchmarks.own_modules --seeds 0:100`: right modules as people write them "
        f"(`benchmarks/own_modules/modules.py`), as ONNX files on {_RUNTIME}: {len(rows):,} packs, "
        f"{sum(row['cases'] for row in rows):,} cases, {len(alarms)} false alarms. A multiple "
        "above 4 is rejected.",
        "",
        "| module | seeds | cases | false alarms | largest multiple | on | notes |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in MODULES:
        mine = [row for row in rows if row["module"] == name]
        if mine:
            worst = max(mine, key=lambda row: float(row["multiple"]))
            notes = sorted({note for row in mine for note in row["notes"]})
            lines.append(
                f"| {name} | {len(mine)} | {sum(row['cases'] for row in mine):,} "
                f"| {sum(len(row['alarms']) for row in mine)} | {worst['multiple']:.2f} "
                f"| {worst['worst']}, seed {worst['seed']} | {', '.join(notes) or '-'} |"
            )
    return "\n".join([*lines, *(["", "## Alarms", "", *alarms] if alarms else [])]) + "\n"


def main() -> None:
    """Run the seeds that are not there yet."""
    parser = argparse.ArgumentParser(description="see the head of this file")
    parser.add_argument("--seeds", default="0:100", help="A:B, A included, B not")
    parser.add_argument("--only", action="append", choices=list(MODULES))
    options = parser.parse_args()
    first, end = (int(part) for part in options.seeds.split(":"))
    text = RESULTS.read_text() if RESULTS.exists() else ""
    rows: list[Row] = [json.loads(line) for line in text.splitlines()]
    there = {(row["module"], row["seed"]) for row in rows}

    def note(row: Row) -> None:
        if (row["module"], row["seed"]) in there:
            return  # exported once more, to go on from
        rows.append(row)
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{row['module']} seed {row['seed']}: {len(row['alarms'])} alarms", flush=True)

    for name in options.only or MODULES:
        if any((name, seed) not in there for seed in range(first, end)):
            missing = [s for s in range(first, end) if s == first or (name, s) not in there]
            run(name, missing, note)
    RESULTS.with_suffix(".md").write_text(page(rows))


if __name__ == "__main__":
    main()
