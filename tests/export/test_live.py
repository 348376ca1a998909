"""``--live``: fresh inputs and lengths, judged against float64 made on the spot."""

import random
from importlib import metadata
from pathlib import Path

import pytest

from conftest import CallCli
from folders import CHECK, DYNAMIC, QUICK, alter, codes, entry, only, report_of
from linattn_export.build.live import subject_of, write_live_packs
from linattn_export.inputs.cases import live_cases
from linattn_export.inputs.families import FAMILIES
from linattn_export.options.variants import Range, make_variants
from linattn_runtime_checks.contract.golden_pack import MAX_TOKENS_PER_CASE, open_reference
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.faults.editing import Graph


def test_more_lengths_than_the_pack_holds_are_judged(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, DYNAMIC)
    plain = entry(report_of(call_cli(CHECK, folder_copy, *QUICK, "--json")), DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json", "--live", "--seed", "7")
    live = entry(report_of(done), DYNAMIC)
    assert done.returncode == 0, done.stderr
    assert "live: seed 7; again with --live --seed 7" in done.stderr
    assert set(live["lengths"]) > set(plain["lengths"])
    number = len(plain["runtimes"][0]["cases"])
    assert len(live["runtimes"][0]["cases"]) > number + 10
    cases = live["runtimes"][0]["cases"]
    fresh = [case for case in cases if case["case"].startswith("live-")]
    assert [case for case in cases if case not in fresh] == plain["runtimes"][0]["cases"]


def test_the_seed_is_drawn_and_told(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--live")
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("live: ")]
    seed = line.split()[2].rstrip(";")
    assert line == f"live: seed {seed}; again with --live --seed {seed}"


def test_what_only_another_length_shows_is_seen(folder_copy: Path, call_cli: CallCli) -> None:
    """A fault at lengths that no pack holds: only fresh ones can meet it."""
    (artifact,) = [a for a in read(folder_copy).artifacts if a.id == DYNAMIC]
    with open_reference(folder_copy / artifact.reference) as reference:
        stored = {case.sequence for case in reference.index.cases}
    hidden = next(n for n in range(40, 60) if n not in stored)

    def wrong_at_one_length(model: object) -> None:
        import numpy as np
        from onnx import TensorProto

        def make(graph: Graph, inner: str) -> str:
            size = graph.append("Shape", ["hidden_states"], start=1, end=2)
            same = graph.append("Equal", [size, graph.constant(np.array([hidden]))])
            much = graph.append("Cast", [same], to=TensorProto.FLOAT)
            return graph.append("Add", [inner, much])

        Graph(model).after_output(make)

    alter(folder_copy, DYNAMIC, wrong_at_one_length)
    only(folder_copy, DYNAMIC)
    assert call_cli(CHECK, folder_copy, *QUICK).returncode == 0
    variants = make_variants((), Range(low=1, high=64), Range(low=1, high=4), "")

    def draws(seed: int) -> set[int]:
        plans = live_cases(variants, [], random.Random(seed))
        return {plan.sequence for plan in plans}

    seed = next(seed for seed in range(1000) if hidden in draws(seed))
    done = call_cli(CHECK, folder_copy, *QUICK, "--live", "--seed", seed, "--json")
    assert done.returncode == 1
    assert {"parity_exceeded", "axis_frozen_inside"} <= codes(report_of(done), DYNAMIC)


def test_weights_come_from_the_pack_and_not_from_what_is_judged(small_folder: Path) -> None:
    manifest = read(small_folder)
    for reference in manifest.references:
        artifacts = [a for a in manifest.artifacts if a.reference == reference.path]
        with open_reference(small_folder / reference.path) as pack:
            subject = subject_of(reference.path, pack, artifacts, 3)
            stored = pack.weights()
        assert {n: tuple(t.shape) for n, t in subject.module.state_dict().items()} == {
            name: array.shape for name, array in stored.items()
        }
        assert len(subject.variants) == len(artifacts)


def test_equal_seeds_give_equal_packs(small_folder: Path, tmp_path: Path) -> None:
    manifest = read(small_folder)
    packs = [manifest.references[0].path]
    bytes_of = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        found = write_live_packs(small_folder, manifest, packs, [11], tmp_path / name)
        bytes_of.append(found[packs[0]][0].read_bytes())
    assert bytes_of[0] == bytes_of[1]


def test_live_cases_stay_in_what_was_declared() -> None:
    variants = make_variants((128,), Range(low=5, high=20_000), Range(low=2, high=64), "")
    families = [family for family in FAMILIES.values() if family.hostile and not family.directed]
    for seed in range(40):
        for plan in live_cases(variants, families, random.Random(seed)):
            assert 5 <= plan.sequence <= 20_000 or plan.sequence == 128
            for batch in plan.batches:
                assert 2 <= batch <= 64
                assert batch * plan.sequence <= max(MAX_TOKENS_PER_CASE, 2 * plan.sequence)


def test_without_the_exporting_side(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Missing:
        def load(self) -> object:
            raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr(metadata, "entry_points", lambda **_: [Missing()])
    done = call_cli(CHECK, folder_copy, *QUICK, "--live")
    assert (done.returncode, done.stdout) == (4, "")
    assert "No module named 'torch'" in done.stderr
    assert "pip install 'linattn[export]'" in done.stderr


def test_a_seed_without_live_is_refused(folder_copy: Path, call_cli: CallCli) -> None:
    done = call_cli(CHECK, folder_copy, "--seed", "3")
    assert done.returncode == 2
    assert "--seed is of the inputs of --live" in done.stderr
