"""Counts false alarms: right artifacts of the default build, judged on the inputs of many seeds.

    python benchmarks/false_alarms.py FOLDER --seeds 200

FOLDER is what ``linattn-export build`` wrote. For every seed, fresh inputs, lengths and batches
(those of ``linattn-check --live``) go through every artifact on every runtime that is here. Any
case that does not pass is a false alarm, for the artifacts are right: the margin is what is left
between the largest multiple that was seen and the K = 4 at which the gate rejects. Long lengths
are drawn less often than short ones, as ``--live`` draws them. Results go to
``benchmarks/results/false_alarms.{json,md}``; each seed is added to what is there, so that a run
can be cut short and taken up again.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from linattn_export.live import write_live_packs
from linattn_runtime_checks import environment
from linattn_runtime_checks.codes import Code
from linattn_runtime_checks.isolation.job import Job
from linattn_runtime_checks.isolation.pool import Limits, run_jobs
from linattn_runtime_checks.manifest import Manifest, read
from linattn_runtime_checks.report.model import RuntimeResult
from linattn_runtime_checks.runtimes import choose
from linattn_runtime_checks.verdict import K

RESULTS = Path(__file__).parent / "results"
_LOST = (Code.PRECISION_LOST,)


def judge_seed(folder: Path, manifest: Manifest, seed: int) -> list[tuple[Job, RuntimeResult]]:
    """Every artifact on every runtime, on the inputs of one seed alone."""
    runtimes, _ = choose(())
    packs = [reference.path for reference in manifest.references]
    with tempfile.TemporaryDirectory(prefix="linattn-seed-") as temporary:
        live = write_live_packs(folder, manifest, packs, seed, Path(temporary))
        jobs = [
            Job(
                folder=str(folder.resolve()),
                artifact=artifact,
                runtime=runtime.name,
                packs=[str(live[artifact.reference][0])],
                threads=environment.cores(),
                measure_cost=False,
            )
            for artifact in manifest.artifacts
            for runtime in runtimes
            if artifact.format in runtime.formats
        ]
        return list(zip(jobs, run_jobs(jobs, Limits(), lambda job: None), strict=True))


def summed(seed: int, results: list[tuple[Job, RuntimeResult]]) -> dict[str, Any]:
    """One seed: cases, alarms, and the largest multiple of each method and runtime."""
    largest: dict[str, float] = {}
    alarms = []
    codes: Counter[str] = Counter()
    for job, result in results:
        key = f"{job.artifact.method} {result.runtime}"
        for case in result.cases:
            codes[case.code] += 1
            if case.code is Code.PASS and case.multiple is not None:
                largest[key] = max(largest.get(key, 0.0), case.multiple)
        for finding in result.findings:
            expected = finding.code in (*_LOST, Code.REFUSAL_UNVERIFIED)
            if not expected:
                alarms.append(f"{finding.code}: {finding.message}")
    return {"seed": seed, "cases": dict(codes), "alarms": alarms, "largest": largest}


def render(seeds: list[dict[str, Any]]) -> str:
    """The page."""
    cases: Counter[str] = Counter()
    largest: dict[str, float] = {}
    for seed in seeds:
        cases.update(seed["cases"])
        for key, multiple in seed["largest"].items():
            largest[key] = max(largest.get(key, 0.0), multiple)
    alarms = [f"seed {seed['seed']}: {text}" for seed in seeds for text in seed["alarms"]]
    rows = "\n".join(f"| {key} | {multiple:.2f} |" for key, multiple in sorted(largest.items()))
    worst = max(largest.values(), default=0.0)
    lines = [
        "# False alarms",
        "",
        f"`python benchmarks/false_alarms.py FOLDER --seeds {len(seeds)}` on the folder of a "
        f"default build (72 artifacts): {sum(cases.values()):,} cases of {len(seeds)} seeds, "
        f"{len(alarms)} false alarms. Largest multiple of a case that passed: {worst:.2f}, where "
        f"{K:g} is rejected.",
        "",
        f"Cases by code: {', '.join(f'{code} {n:,}' for code, n in sorted(cases.items()))}.",
        "",
        "| method and runtime | largest multiple |",
        "| --- | --- |",
        rows,
    ]
    lines += ["", "## Alarms", "", *[f"- {text}" for text in alarms]] if alarms else []
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the seeds that are not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    options = parser.parse_args()
    manifest = read(options.folder)
    path = RESULTS / "false_alarms.json"
    done = [] if options.fresh or not path.exists() else json.loads(path.read_text())["seeds"]
    known = {each["seed"] for each in done}
    for seed in range(options.first, options.first + options.seeds):
        if seed in known:
            continue
        start = time.monotonic()
        done.append(summed(seed, judge_seed(options.folder, manifest, seed)))
        document = {"environment": environment.describe(), "seeds": done}
        path.write_text(json.dumps(document, indent=1) + "\n")
        (RESULTS / "false_alarms.md").write_text(render(done))
        print(f"seed {seed}: {len(done[-1]['alarms'])} alarms, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
