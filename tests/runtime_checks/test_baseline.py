"""--baseline: what got larger or slower is a regression, noise and a slower machine are not."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conftest import CallCli, run_cli
from folders import CHECK, DYNAMIC, FIXED, QUICK, alter, only, report_of
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode, UsageError
from linattn_runtime_checks.judging.baseline import LATENCY_BAND, SIZE_BAND, compare, read_baseline
from linattn_runtime_checks.report.latency_tables import against_table
from linattn_runtime_checks.results.latency import LatencyResult, LatencyTable
from linattn_runtime_checks.results.report import Against, ArtifactResult, Report

SPREAD = 0.05


def table(
    p50: float, machine: float = 1.0, threads: int = 2, runtime: str = "ort-cpu"
) -> LatencyTable:
    result = LatencyResult(
        model="layer",
        method="elu",
        format="onnx",
        variant="dynamic",
        runtime=runtime,
        batch=1,
        sequence=64,
        runs=20,
        first_ms=p50,
        min_ms=p50,
        p50_ms=p50,
        p90_ms=p50,
        p99_ms=p50,
        low_ms=p50 * (1 - SPREAD),
        high_ms=p50 * (1 + SPREAD),
    )
    return LatencyTable(
        threads=threads,
        load_before=0.0,
        load_after=0.0,
        results=[result],
        machine_ms={64: machine},
    )


def report(
    latency: LatencyTable | None, size: int = 10_000, name: str = DYNAMIC, processor: str = "one"
) -> Report:
    artifact = ArtifactResult(
        id=name,
        model="layer",
        method="elu",
        format="onnx",
        variant="dynamic",
        bytes=size,
        parameters=10,
        nodes=10,
        declared_sequence=(1, 64),
    )
    return Report(
        environment={"processor": processor, "cores": 2, "system": "Linux"},
        runtimes=["ort-cpu"],
        left_out={},
        artifacts=[artifact],
        latency=latency,
    )


def against(now: Report, before: Report, again: LatencyTable | None = None) -> Against:
    def measure(keys: set[str]) -> LatencyTable:
        assert keys == {f"{DYNAMIC} on ort-cpu, batch 1, 64 tokens"}
        assert again is not None, "nothing was suspect"
        return again

    return compare(now, before, measure)


def codes(found: Against) -> list[Code]:
    return [finding.code for finding in found.findings]


def test_equal_reports_have_no_findings() -> None:
    found = against(report(table(1.0)), report(table(1.0)))
    assert not found.findings
    assert {change.what for change in found.changes} == {"size", "latency"}
    assert all(change.ratio == pytest.approx(1) for change in found.changes)


def test_latencies_that_were_not_measured_again_are_counted() -> None:
    before = table(1.0)
    (result,) = before.results
    for change in ({"runtime": "pt2"}, {"batch": 8}, {"runtime": "eager"}):
        before.results.append(result.model_copy(update=change))
    now = report(table(1.0))
    now.against = against(now, report(before))
    assert not now.against.findings
    assert now.against.uncompared == 2, "eager is in reports of builds only"
    shown = against_table(now)
    assert shown is not None
    assert "; 2 latencies of the baseline were not measured here" in shown.note


def test_slower_in_both_runs_is_a_regression() -> None:
    found = against(report(table(2.0)), report(table(1.0)), again=table(1.9))
    assert codes(found) == [Code.LATENCY_GREW]
    assert found.findings[0].exit_code is ExitCode.REGRESSION
    assert "1.00 ms before, 1.90 now, 1.90 times as long" in found.findings[0].message


def test_slower_in_one_run_alone_is_noise() -> None:
    assert not against(report(table(2.0)), report(table(1.0)), again=table(1.1)).findings


@pytest.mark.parametrize(("factor", "worse"), [(0.98, False), (1.02, True)])
def test_the_whole_interval_must_lie_beyond_the_band(factor: float, worse: bool) -> None:
    edge = LATENCY_BAND * (1 + SPREAD) / (1 - SPREAD)
    now = table(edge * factor)
    assert bool(against(report(now), report(table(1.0)), again=now).findings) is worse


def test_a_slower_machine_is_no_regression_and_a_faster_one_hides_none() -> None:
    assert not against(report(table(3.0, machine=3.0)), report(table(1.0))).findings
    hidden = table(1.0, machine=0.5)
    assert codes(against(report(hidden), report(table(1.0)), again=hidden)) == [Code.LATENCY_GREW]


def test_a_larger_file_is_a_regression() -> None:
    before = report(None)
    assert not against(report(None, size=int(10_000 * SIZE_BAND)), before).findings
    found = against(report(None, size=int(10_000 * SIZE_BAND) + 1), before)
    assert codes(found) == [Code.SIZE_GREW]
    assert "10000 bytes before, 10101 now" in found.findings[0].message


def test_an_artifact_that_is_gone_is_a_regression() -> None:
    assert codes(against(report(None), report(None, name="layer/taylor/onnx/dynamic"))) == [
        Code.ARTIFACT_GONE
    ]


def test_many_artifacts_that_are_gone_are_one_finding() -> None:
    before = report(None)
    (artifact,) = before.artifacts
    names = [f"layer/elu/onnx/n{length}" for length in range(9)]
    before.artifacts = [artifact.model_copy(update={"id": name}) for name in names]
    (finding,) = against(report(None), before).findings
    assert finding.message.startswith("9 artifacts (layer/elu/onnx/n0, layer/elu/onnx/n1, ")
    assert finding.message.endswith(", ..) are in the baseline, but not in the folder")


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (report(None), "it holds none"),
        (report(table(1.0), processor="two"), "it was measured with processor two"),
        (report(table(1.0, threads=1)), "it ran 1 threads, this run 2"),
        (report(table(1.0, runtime="ort-cuda")), "timed in both"),
        (
            report(table(1.0).model_copy(update={"machine_ms": {}})),
            "the machine's speed at 64",
        ),
    ],
)
def test_what_cannot_be_compared_is_said_and_fails(before: Report, why: str) -> None:
    (finding,) = against(report(table(1.0)), before).findings
    assert finding.code is Code.BASELINE_INCOMPARABLE
    assert finding.exit_code is ExitCode.UNVERIFIED
    assert why in finding.message


def test_without_latency_only_sizes_are_compared() -> None:
    found = against(report(None), report(table(1.0)))
    assert not found.findings
    assert [change.what for change in found.changes] == ["size"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("{", "is not a report of this version: the document: Invalid JSON"),
        ('{"schema_version": "1.0"}', "is not a report of this version: environment"),
    ],
)
def test_a_baseline_that_is_none_is_refused(text: str | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_baseline(path)


def test_the_command_compares_and_exits_with_six(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, DYNAMIC, FIXED)
    baseline = folder_copy / "before.json"
    baseline.write_text(call_cli(CHECK, folder_copy, *QUICK, "--json").stdout)
    same = call_cli(CHECK, folder_copy, *QUICK, "--baseline", baseline)
    assert same.returncode == 0, same.stderr
    assert "2 sizes and 0 latencies were compared, 0 are worse" in " ".join(same.stderr.split())
    only(folder_copy, FIXED)
    junit = folder_copy / "junit.xml"
    gone = call_cli(CHECK, folder_copy, *QUICK, "--baseline", baseline, "--json", "--junit", junit)
    assert gone.returncode == 6
    assert report_of(gone)["verdict"] == "REGRESSION"
    assert f"artifact_gone: {DYNAMIC} is in the baseline" in gone.stderr
    assert "artifact_gone" in junit.read_text()
    missing = call_cli(CHECK, folder_copy, *QUICK, "--baseline", folder_copy / "none.json")
    assert missing.returncode == 2
    assert "none.json cannot be read" in missing.stderr


def slow_down(model: onnx.ModelProto) -> None:
    """Two hundred products with the identity before the output: the same bytes, later."""
    (output,) = model.graph.output
    width = output.type.tensor_type.shape.dim[-1].dim_value
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if name == output.name:
                node.output[place] = "late_0"
    identity = numpy_helper.from_array(np.eye(width, dtype=np.float32), "identity")
    model.graph.initializer.append(identity)
    for step in range(200):
        after = output.name if step == 199 else f"late_{step + 1}"
        model.graph.node.append(helper.make_node("MatMul", [f"late_{step}", "identity"], [after]))


@pytest.mark.alone
@pytest.mark.slow
def test_a_planted_slow_down_is_seen_and_noise_is_not(folder_copy: Path) -> None:
    only(folder_copy, DYNAMIC, FIXED)
    baseline = folder_copy / "before.json"
    baseline.write_text(run_cli(CHECK, folder_copy, "--runtime", "ort-cpu", "--json").stdout)
    same = run_cli(CHECK, folder_copy, "--runtime", "ort-cpu", "--baseline", baseline)
    assert same.returncode == 0, same.stderr
    alter(folder_copy, FIXED, slow_down, DYNAMIC)
    slow = run_cli(CHECK, folder_copy, "--runtime", "ort-cpu", "--baseline", baseline, "--json")
    assert slow.returncode == 6, slow.stderr
    worse = [c["subject"] for c in report_of(slow)["against"]["changes"] if c["worse"]]
    assert f"{FIXED} on ort-cpu, batch 1, 16 tokens" in worse
    assert not [subject for subject in worse if subject.startswith(DYNAMIC)]
