"""The rules of other tools as benchmarks/peer_rules.py states them, and what it has committed."""

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks import peer_rules
from benchmarks.peers import sums
from benchmarks.peers.measure import SEEDS, bench_of, in_onnx_runtime, measure
from benchmarks.peers.page import PAGE, render
from benchmarks.peers.rules import OWN, PEERS, real_polygraphy
from benchmarks.peers.settings import LENGTHS, SETTINGS, Setting
from linattn_runtime_checks.contract.verdict import K

NAN = float("nan")


@pytest.fixture(scope="module")
def result() -> Any:
    return json.loads(peer_rules.RESULTS.read_text(encoding="utf-8"))


def verdict(rule: str, eager: list[float], artifact: list[float]) -> bool:
    pair = (np.array(x, dtype=np.float32) for x in (eager, artifact))
    passes = PEERS[rule](*pair)
    assert isinstance(passes, bool)
    return passes


@pytest.mark.parametrize(
    ("eager", "artifact", "passes"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0], [1.0049], True),
        ([1.0], [1.0051], False),  # absolute
        ([1e-3], [1.09e-3], True),
        ([1e-3], [1.11e-3], False),  # relative
        ([0.0], [0.9e-8], True),  # relative to 1e-7
        ([0.0], [1.1e-8], False),
        ([1.0, 1.0], [1.0, NAN], True),  # no comparison with NaN is true
        ([1.0, 1.0], [9.0, NAN], True),  # and it hides what else is wrong
    ],
)
def test_torch_onnx(eager: list[float], artifact: list[float], passes: bool) -> None:
    assert verdict("torch.onnx", eager, artifact) is passes


@pytest.mark.parametrize(
    ("eager", "artifact", "passes"),
    [
        ([0.0], [0.9e-5], True),
        ([0.0], [1.1e-5], False),
        ([1.0], [1.000019], True),  # atol and rtol add up
        ([1.0], [1.000022], False),
        ([1.0], [NAN], False),
        ([NAN], [NAN], False),
    ],
)
def test_optimum_onnx(eager: list[float], artifact: list[float], passes: bool) -> None:
    assert verdict("optimum-onnx", eager, artifact) is passes


@pytest.mark.parametrize(
    ("eager", "artifact", "passes"),
    [
        ([0.0], [1.4e-3], True),
        ([0.0], [1.6e-3], False),
        ([1e4], [1e4 + 2e-3], False),  # the size of the output does not matter
        ([1.0], [NAN], False),
        ([NAN], [NAN], True),
    ],
)
def test_timm(eager: list[float], artifact: list[float], passes: bool) -> None:
    assert verdict("timm", eager, artifact) is passes


POLYGRAPHY = [
    ([0.0], [0.9e-5], True),  # within atol alone
    ([1e4], [1e4 + 0.05], True),  # within rtol alone
    ([1.0, 0.0], [1.000019, 0.0], False),  # beyond both: they do not add up
    ([1e-3, 1e4], [1.009e-3, 1e4 + 0.05], True),  # each element has its own way out
    ([1.0], [NAN], False),
    ([NAN], [NAN], False),
    ([0.0], [1.1e-5], False),
]


@pytest.mark.parametrize(("eager", "artifact", "passes"), POLYGRAPHY)
def test_polygraphy(eager: list[float], artifact: list[float], passes: bool) -> None:
    assert verdict("Polygraphy", eager, artifact) is passes


@pytest.mark.references
def test_polygraphy_itself_says_the_same() -> None:
    real = real_polygraphy()
    assert real is not None, "run: pip install '.[references]'"
    for eager, artifact, passes in POLYGRAPHY:
        pair = (np.array(x, dtype=np.float32) for x in (eager, artifact))
        assert real[1](*pair) is passes


@pytest.mark.parametrize("rule", PEERS)
def test_another_shape_is_rejected(rule: str) -> None:
    assert not verdict(rule, [1.0, 1.0, 1.0], [1.0, 1.0])


def test_linattn_rejects_every_fault_and_passes_every_right_output(result: Any) -> None:
    rows = result["rows"]
    assert {row["length"] for row in rows} == set(LENGTHS)
    for row in rows:
        assert row["passes"][OWN] is not row["wrong"], row
        assert row["code"] != "inconclusive"


def test_the_numbers_are_of_the_faults_that_the_script_plants(result: Any) -> None:
    planted = [
        (setting.name, name, length)
        for setting in SETTINGS
        for length in LENGTHS
        for name in (*setting.forwards, *setting.edits)
    ]
    found = [(r["setting"], r["output"], r["length"]) for r in result["rows"] if r["wrong"]]
    assert found == planted
    assert len({pair[:2] for pair in planted}) >= 12


def test_every_peer_passes_some_fault_and_rejects_some_right_output(result: Any) -> None:
    for rule in PEERS:
        assert any(row["passes"][rule] for row in result["rows"] if row["wrong"])
        assert not all(row["passes"][rule] for row in result["rows"] if not row["wrong"])


def test_polygraphy_was_there_and_agreed(result: Any) -> None:
    assert result["polygraphy"]
    for row in result["rows"]:
        assert row["real polygraphy passes"] is row["passes"]["Polygraphy"], row


def test_the_page_is_what_the_numbers_say(result: Any) -> None:
    assert PAGE.read_text(encoding="utf-8") == render(result)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_shortest_length_gives_the_committed_verdicts(setting: Setting, result: Any) -> None:
    length = LENGTHS[0]
    bench = bench_of(setting)
    for row in measure(bench, {}, (length,)):
        names = ("setting", "output", "length")
        (committed,) = (
            other
            for other in result["rows"]
            if other["wrong"] and all(other[name] == row[name] for name in names)
        )
        assert row["passes"] == committed["passes"]
        assert row["code"] == committed["code"]


@pytest.mark.parametrize(
    ("kind", "reductions", "products", "slices"),
    [("ReduceSum", 2, 3, 0), ("one row", 0, 5, 2), (sums.KEPT, 0, 5, 2)],
)
def test_sums_are_exported_as_the_page_says(
    kind: str, reductions: int, products: int, slices: int, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    with sums.summed(kind):
        in_onnx_runtime(sums.SETTING.subject(), path)
    operators = Counter(node.op_type for node in onnx.load(path).graph.node)
    found = [operators[name] for name in ("ReduceSum", "MatMul", "Slice")]
    assert found == [reductions, products, slices], "of eight rows, seven are cut off again"


def test_eight_rows_are_what_the_page_says(result: Any) -> None:
    def median(kind: str, length: int, key: str) -> float:
        group = [r[key] for r in result["sums"] if (r["sum"], r["length"]) == (kind, length)]
        return float(np.median(group))

    def growth(kind: str, key: str) -> float:
        return median(kind, sums.LENGTHS[-1], key) / median(kind, sums.LENGTHS[0], key)

    assert growth("ReduceSum", "ONNX Runtime") > 1.5
    assert growth("one row", "eager") > 1.5
    assert growth(sums.KEPT, "eager") < 1.3 > growth(sums.KEPT, "ONNX Runtime")
    for row in result["sums"]:
        if row["sum"] == sums.KEPT:
            assert max(row["multiple"], row["by ReduceSum's yardstick"]) < K


def test_sums_were_measured_for_every_kind_length_and_seed(result: Any) -> None:
    found = [(row["sum"], row["length"], row["seed"]) for row in result["sums"]]
    assert found == list(itertools.product(sums.KINDS, sums.LENGTHS, SEEDS))


def test_the_script_runs_from_anywhere(tmp_path: Path) -> None:
    script = Path(peer_rules.__file__)
    done = subprocess.run([sys.executable, script, "--help"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
