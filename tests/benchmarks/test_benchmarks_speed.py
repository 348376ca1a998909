"""The arithmetic of the speed tables, the floor graph, and that the scripts run."""

import functools
import importlib
import itertools
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.speed import export_time, page, recurrence, recurrence_graphs
from benchmarks.speed.floor_graph import floor_inputs, multiplications, write_floor
from benchmarks.speed.layers import QUICK, hidden_states, open_session
from benchmarks.speed.load import Watch
from benchmarks.speed.ratios import Goal, Ratio, ratio
from benchmarks.speed.timing import interleave

SCRIPTS = (
    "floor", "softmax", "eager", "fixed", "peers", "memory", "startup", "export_time",
    "recurrence", "recurrence_memory", "decoding",
)  # fmt: skip
LENGTH = 24


@pytest.mark.parametrize("linformer", [False, True], ids=["kernel", "linformer"])
def test_floor_graph_holds_the_products_of_the_layer_and_computes_them(
    tmp_path: Path, linformer: bool
) -> None:
    path = tmp_path / "floor.onnx"
    write_floor(path, LENGTH, QUICK, linformer=linformer)
    graph = onnx.load(path).graph
    operators = Counter(node.op_type for node in graph.node)
    assert operators["MatMul"] == (8 if linformer else 6)
    assert set(operators) == {"MatMul", "Reshape"}

    x = hidden_states(LENGTH, QUICK)
    inputs = floor_inputs(x, QUICK, linformer=linformer)
    weights = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    heads, width, model = QUICK.heads, QUICK.width, QUICK.d_model
    q, k, v = (x @ weights[f"w_{name}"] for name in "qkv")
    query = q.reshape(heads, LENGTH, width)
    if linformer:
        slots_key = (inputs["E"] @ k[0]).reshape(heads, width, QUICK.rank)
        slots_value = (inputs["F"] @ v[0]).reshape(heads, QUICK.rank, width)
        attended = query @ slots_key @ slots_value
    else:
        context = k.reshape(heads, width, LENGTH) @ v.reshape(heads, LENGTH, width)
        attended = query @ context
    expected = attended.reshape(1, LENGTH, model) @ weights["w_o"]
    output = open_session(path).run(inputs)["output"]
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("linformer", [False, True], ids=["kernel", "linformer"])
def test_floor_counts_its_multiplications(tmp_path: Path, linformer: bool) -> None:
    path = tmp_path / "floor.onnx"
    write_floor(path, LENGTH, QUICK, linformer=linformer)
    model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    values = [*model.graph.value_info, *model.graph.input, *model.graph.output]
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    shapes |= {item.name: list(item.dims) for item in model.graph.initializer}
    total = sum(
        int(np.prod(shapes[node.output[0]])) * shapes[node.input[0]][-1]
        for node in model.graph.node
        if node.op_type == "MatMul"
    )
    assert total == multiplications(LENGTH, QUICK, linformer=linformer)


def test_ratio_comes_from_paired_rounds() -> None:
    # The machine slows down tenfold half-way: unpaired medians would not show the ratio of 2.
    drift = np.array([1.0] * 10 + [10.0] * 10)
    noise = np.random.default_rng(0).uniform(0.99, 1.01, size=20)
    found = ratio(list(2 * drift * noise), list(drift))
    assert found.rounds == 20
    assert 1.98 < found.low <= found.value <= found.high < 2.02


def test_interval_grows_with_the_noise() -> None:
    generator = np.random.default_rng(0)
    quiet, loud = (ratio(list(generator.lognormal(0, s, 30)), [1.0] * 30) for s in (0.01, 0.3))
    assert quiet.high - quiet.low < 0.02 < loud.high - loud.low
    assert loud.low < 1 < loud.high


@pytest.mark.parametrize(
    ("numerator", "denominator"), [([], []), ([1.0], [1.0, 2.0])], ids=["none", "unequal"]
)
def test_ratio_needs_the_same_rounds(numerator: list[float], denominator: list[float]) -> None:
    with pytest.raises(ValueError, match=r"round|zip"):
        ratio(numerator, denominator)


@pytest.mark.parametrize(
    ("goal", "low", "high", "verdict"),
    [
        (Goal(value=1.3), 1.1, 1.3, "met"),
        (Goal(value=1.3), 1.2, 1.31, "inconclusive"),
        (Goal(value=1.3), 1.31, 1.4, "missed"),
        (Goal(value=15, at_least=True), 15.0, 16.0, "met"),
        (Goal(value=15, at_least=True), 14.0, 16.0, "inconclusive"),
        (Goal(value=15, at_least=True), 13.0, 14.9, "missed"),
    ],
)
def test_verdict(goal: Goal, low: float, high: float, verdict: str) -> None:
    assert goal.judge(low, high) == verdict


def test_turns_are_interleaved_and_the_first_call_of_each_does_not_count() -> None:
    calls: list[str] = []

    def contender(name: str) -> Any:
        def call() -> None:
            cold = not calls or calls[-1] != name
            calls.append(name)
            time.sleep(0.02 if cold else 0.002)

        return call

    times = interleave({"a": contender("a"), "b": contender("b")}, budget_s=0, rounds=4)
    assert [len(times[name]) for name in "ab"] == [4, 4]
    # But for rounds in which the one before was the same contender, each turn starts cold.
    assert all(seconds < 0.015 for name in "ab" for seconds in times[name])
    turns = "".join(calls[6:])  # after the warm-up
    assert turns == "aaaabbbb" + "bbbbaaaa" + "bbbbaaaa" + "aaaabbbb"


def test_long_calls_take_one_run_a_turn() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("slow")
        time.sleep(0.06)

    assert len(interleave({"slow": slow}, budget_s=0)["slow"]) == 5
    assert len(calls) == 3 + 5


def test_the_watch_sees_other_processes_but_not_this_one() -> None:
    watch = Watch()
    before, wall = time.process_time(), time.perf_counter()
    while time.perf_counter() - wall < 0.5:
        pass
    assert time.process_time() > before
    share = watch.others()
    assert share is None or 0 <= share < 1
    assert "%" in watch.stated() or "not known" in watch.stated()


def test_a_page_shows_ratio_interval_goal_and_machine(tmp_path: Path) -> None:
    found = Ratio(value=1.5, low=1.4, high=1.6, rounds=9)
    row = page.ratio_row({"method": "elu", "N": 8}, {"ms": 0.1234567}, found, Goal(value=1.08))
    page.write(
        tmp_path, "x", title="T", text="Text.", settings="S", load="L", rows=[row], notes=["a note"]
    )
    document = json.loads((tmp_path / "speed_x.json").read_text())
    assert document["rows"][0]["ratio"] == {"value": 1.5, "low": 1.4, "high": 1.6, "rounds": 9}
    text = (tmp_path / "speed_x.md").read_text()
    assert "| elu | 8 | 0.123 | 1.50 (1.40 to 1.60) | <= 1.08 | missed |" in text
    assert "- a note" in text
    assert f"{document['environment']['cores']} cores" in text


def run_script(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    importlib.import_module(f"benchmarks.speed.{name}").main()


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        run_script(name, monkeypatch, "--help")
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert "--quick" in shown
    assert "--output" in shown


def test_every_script_is_tested() -> None:
    folder = Path(page.__file__).parent
    found = {path.stem for path in folder.glob("*.py") if "def main()" in path.read_text()}
    assert found == set(SCRIPTS)


@pytest.mark.slow
def test_quick_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_script("floor", monkeypatch, "--quick", "--output", tmp_path)
    document = json.loads((tmp_path / "speed_floor.json").read_text())
    assert {row["method"] for row in document["rows"]} == {
        "elu", "relu", "taylor", "efficient", "linformer",
    }  # fmt: skip
    for row in document["rows"]:
        assert row["ratio"]["low"] <= row["ratio"]["value"] <= row["ratio"]["high"]
        assert row["verdict"] in ("met", "missed", "inconclusive")
    assert (tmp_path / "speed_floor.md").read_text().startswith("# ")


@pytest.mark.alone
@pytest.mark.slow
def test_quick_mode_of_the_recurrence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_script("recurrence", monkeypatch, "--quick", "--output", tmp_path)
    document = json.loads((tmp_path / "speed_recurrence.json").read_text())
    against = {(row["rule"], row["N"], row["against"]) for row in document["rows"]}
    rules, nodes = ("linear", "gated, by head"), ("com.microsoft", "ai.onnx 27")
    assert against == set(itertools.product(rules, (40, 100), nodes))
    (causal,) = document["more"]["Causal attention against all states at once"]
    assert causal["goal"] == "<= 0.1"


@pytest.mark.alone
@pytest.mark.slow
def test_quick_mode_of_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_script("recurrence_memory", monkeypatch, "--quick", "--output", tmp_path)
    document = json.loads((tmp_path / "speed_recurrence_memory.json").read_text())
    assert document["notes"] or {row["rule"] for row in document["rows"]} == {
        "linear", "gated, by head",
    }  # fmt: skip


def test_what_differs_is_not_timed(tmp_path: Path) -> None:
    linear = recurrence_graphs.RULES[0]
    recurrence_graphs.write_operator(tmp_path / "m.onnx", linear, QUICK, standard=False)
    session = open_session(tmp_path / "m.onnx")
    inputs = recurrence_graphs.inputs_of(linear, 8, QUICK)
    other = inputs | {"value": 2 * inputs["value"]}
    assert recurrence.difference(session, session, inputs) == 0

    class Other:
        def run(self, _: object) -> Any:
            return session.run(dict(other))

    with pytest.raises(SystemExit, match="outputs differ by"):
        recurrence.require_same("linear", Other(), session, inputs)  # type: ignore[arg-type]


FAKE_OPTIMUM = """#!{python}
import pathlib, sys
out = pathlib.Path(sys.argv[-1])
out.mkdir(exist_ok=True)
(out / "model.onnx").touch()
"""
FAILING_OPTIMUM = """#!{python}
raise SystemExit("no such task")
"""


@pytest.mark.slow
def test_export_time_with_a_stand_in_for_optimum_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def left_with(code: int, command: Path) -> str:
        with pytest.raises(SystemExit) as left:
            run_script("export_time", monkeypatch, *options, "--optimum-cli", command)
        assert left.value.code == code
        return capsys.readouterr().err

    command, results = tmp_path / "optimum-cli", tmp_path / "results"
    options = ("--quick", "--output", results)
    assert "--optimum-cli PATH" in left_with(4, command)

    command.write_text(FAILING_OPTIMUM.format(python=sys.executable))
    command.chmod(0o755)
    assert left_with(3, command) == "optimum-cli ends with 1: no such task\n"
    assert not results.exists()

    command.write_text(FAKE_OPTIMUM.format(python=sys.executable))
    monkeypatch.setattr(export_time.Ours, "run", functools.cache(export_time.Ours.run))
    run_script("export_time", monkeypatch, *options, "--optimum-cli", command)
    (row,) = json.loads((results / "speed_export_time.json").read_text())["rows"]
    assert row["artifacts"] == 2
    assert row["outputs compared"] > row["artifacts"]
    assert row["s an artifact"] == pytest.approx(row["build s"] / 2)
    assert all(str(tmp_path) not in path.read_text() for path in results.iterdir())
