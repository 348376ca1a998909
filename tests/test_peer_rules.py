"""The rules of other tools as benchmarks/peer_rules.py states them, and what it has committed."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
NAN = float("nan")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "peer_rules", ROOT / "benchmarks" / "peer_rules.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


peer_rules = load()


@pytest.fixture(scope="module")
def result() -> Any:
    return json.loads(peer_rules.RESULTS.read_text(encoding="utf-8"))


def verdict(rule: str, eager: list[float], artifact: list[float]) -> bool:
    pair = (np.array(x, dtype=np.float32) for x in (eager, artifact))
    passes = peer_rules.PEERS[rule](*pair)
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


def test_polygraphy_itself_says_the_same() -> None:
    real = peer_rules.real_polygraphy()
    if real is None:
        pytest.skip("polygraphy is not installed")
    for eager, artifact, passes in POLYGRAPHY:
        pair = (np.array(x, dtype=np.float32) for x in (eager, artifact))
        assert real[1](*pair) is passes


@pytest.mark.parametrize("rule", peer_rules.PEERS)
def test_another_shape_is_rejected(rule: str) -> None:
    assert not verdict(rule, [1.0, 1.0, 1.0], [1.0, 1.0])


def test_linattn_rejects_every_fault_and_passes_every_right_output(result: Any) -> None:
    rows = result["rows"]
    assert {row["length"] for row in rows} == set(peer_rules.LENGTHS)
    for row in rows:
        assert row["passes"][peer_rules.OWN] is not row["wrong"], row
        assert row["code"] != "inconclusive"


def test_the_numbers_are_of_the_faults_that_the_script_plants(result: Any) -> None:
    planted = [
        (setting.name, name, length)
        for setting in peer_rules.SETTINGS
        for length in peer_rules.LENGTHS
        for name in (*setting.forwards, *setting.edits)
    ]
    found = [(r["setting"], r["output"], r["length"]) for r in result["rows"] if r["wrong"]]
    assert found == planted
    assert len({pair[:2] for pair in planted}) >= 12


def test_every_peer_passes_some_fault_and_rejects_some_right_output(result: Any) -> None:
    for rule in peer_rules.PEERS:
        assert any(row["passes"][rule] for row in result["rows"] if row["wrong"])
        assert not all(row["passes"][rule] for row in result["rows"] if not row["wrong"])


def test_polygraphy_was_there_and_agreed(result: Any) -> None:
    assert result["polygraphy"]
    for row in result["rows"]:
        assert row["real polygraphy passes"] is row["passes"]["Polygraphy"], row


def test_the_page_is_what_the_numbers_say(result: Any) -> None:
    assert peer_rules.PAGE.read_text(encoding="utf-8") == peer_rules.render(result)


@pytest.mark.parametrize("setting", peer_rules.SETTINGS, ids=lambda setting: setting.name)
def test_the_shortest_length_gives_the_committed_verdicts(setting: Any, result: Any) -> None:
    length = peer_rules.LENGTHS[0]
    bench = peer_rules.bench_of(setting)
    for row in peer_rules.measure(bench, {}, (length,)):
        names = ("setting", "output", "length")
        (committed,) = (
            other
            for other in result["rows"]
            if other["wrong"] and all(other[name] == row[name] for name in names)
        )
        assert row["passes"] == committed["passes"]
        assert row["code"] == committed["code"]
