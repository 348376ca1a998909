"""Which nodes ran where, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from conftest import CallCli
from folders import CHECK, DYNAMIC, QUICK, entry, only, report_of
from linattn_runtime_checks.contract.errors import EnvironmentProblem
from linattn_runtime_checks.runtimes import placement
from linattn_runtime_checks.runtimes.onnx_runtime import CPU, CUDA


def event(name: str, op: str, provider: str) -> dict[str, Any]:
    args = {"op_name": op, "provider": provider}
    return {"cat": "Node", "name": f"{name}_kernel_time", "args": args}


def test_the_report_says_where_every_node_ran(folder_copy: Path, call_cli: CallCli) -> None:
    only(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--json")
    (runtime,) = entry(report_of(done), DYNAMIC)["runtimes"]
    found = runtime["placement"]
    assert found["provider"] == CPU
    assert list(found["nodes"]) == [CPU]
    assert found["nodes"][CPU] > 20
    assert (found["elsewhere"], found["casts_inserted"], found["tf32"]) == ({}, 0, None)


def test_sizes_may_be_computed_on_the_cpu() -> None:
    events = [event("a", "MatMul", CUDA), event("b", "Shape", CPU), event("c", "Concat", CPU)]
    found = placement.read(events, CUDA, 0, False)
    placement.require(found)
    assert found.elsewhere == {"Concat": 1, "Shape": 1}
    assert found.line() == (
        f"2 on {CPU}, 1 on {CUDA}; 0 casts inserted, 0 copies, TF32 off"
    )  # fmt: skip


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "FusedMatMul", "Softmax", "Einsum"])
def test_a_product_elsewhere_is_a_fallback(op: str) -> None:
    events = [event("a", "Add", CUDA), event("b", op, CPU)]
    with pytest.raises(EnvironmentProblem, match=f"{CUDA} was asked for, but {op} ran elsewhere"):
        placement.require(placement.read(events, CUDA, 0, True))


def test_nothing_on_the_provider_is_a_fallback() -> None:
    with pytest.raises(EnvironmentProblem, match="every node ran elsewhere"):
        placement.require(placement.read([event("a", "Add", CPU)], CUDA, 0, None))


def test_casts_and_copies_that_the_runtime_inserted_are_counted_once_a_node() -> None:
    events = [event("a", "Cast", CUDA), event("b", "Cast", CUDA), event("b", "Cast", CUDA)]
    events += [event("m", "MemcpyFromHost", CUDA), {"cat": "Session", "name": "x", "args": {}}]
    found = placement.read(events, CUDA, 1, True)
    assert (found.casts_inserted, found.copies, found.tf32) == (1, 1, True)


def test_a_run_without_a_profile_proves_nothing() -> None:
    class Session:
        def run(self, names: object, inputs: object) -> None:
            pass

        def end_profiling(self) -> str:
            return "/nowhere/profile.json"

        def get_provider_options(self) -> dict[str, dict[str, str]]:
            return {}

    with pytest.raises(EnvironmentProblem, match="where the nodes ran cannot be proven"):
        placement.prove(lambda prefix: Session(), {}, CUDA, 0)


def test_no_number_is_taken_where_the_work_was_done_elsewhere(
    folder_copy: Path, call_cli: CallCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(events: object, provider: str, casts: int, tf32: object) -> placement.Placement:
        return real([event("a", "MatMul", "OtherExecutionProvider")], provider, casts, None)

    real = placement.read
    monkeypatch.setattr(placement, "read", elsewhere)
    only(folder_copy, DYNAMIC)
    done = call_cli(CHECK, folder_copy, *QUICK, "--in-process", "--json")
    assert done.returncode == 4
    (runtime,) = entry(report_of(done), DYNAMIC)["runtimes"]
    assert runtime["cases"] == []
    assert "MatMul ran elsewhere" in done.stderr
