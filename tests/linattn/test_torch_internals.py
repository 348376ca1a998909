"""What linattn takes from inside of torch does what is relied on, and is taken in one place."""

import ast
import importlib
import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linattn import torch_internals as inside
from roots import ROOT

HOME = ROOT / "linattn" / "torch_internals.py"
PACKAGES = ("linattn", "models", "export", "runtime_checks", "benchmarks")
ELSEWHERE = {
    # Another package, which runs without torch: it imports early what torch.export.load needs.
    "runtime_checks/linattn_runtime_checks/runtimes/torch_runtimes.py": {
        "torch._export.serde.serialize"
    },
    # torch.nn.TransformerEncoderLayer reads this attribute of ours.
    "linattn/torch_compat.py": {"_qkv_same_embed_dim"},
}
"""What may be used outside of the home, with the reason."""
UNDERSCORED = {
    name
    for thing in (
        nn.Module(),
        torch.jit.trace(nn.Identity(), torch.ones(1)),  # type: ignore[no-untyped-call]
        torch.ops.aten.add.Tensor,
        torch.export.export(nn.Identity(), (torch.ones(1),)),
    )
    for name in dir(thing)
    if name.startswith("_") and not name.startswith("__")
} | {"_log_guard", "_orig_mod", "_guards_fn", "_in_spec"}
"""Private attributes of the objects of torch that we handle."""


def dotted(node: ast.AST) -> str:
    """``torch._ops.OpOverload`` of an attribute, empty where it does not start at a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        start = dotted(node.value)
        return f"{start}.{node.attr}" if start else ""
    return ""


def is_private(name: str) -> bool:
    """Whether a dotted name is of torch, and some part of it is private."""
    return re.match(r"torch(\.\w+)*\._[a-z]", name) is not None


def private_parts(text: str) -> set[str]:
    """The private parts of torch that a file names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {node.module if is_private(node.module) else n for n in names if is_private(n)}
        elif isinstance(node, ast.Attribute):
            if is_private(dotted(node)):
                found.add(dotted(node))
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr in UNDERSCORED and not own:
                found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value} if re.fullmatch(r"torch[\w.]*\._[\w.]+", node.value) else set()
    return found


def test_private_parts_are_used_in_one_file() -> None:
    strays = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            found = private_parts(path.read_text(encoding="utf-8")) - ELSEWHERE.get(name, set())
            if found and path != HOME:
                strays[name] = found
    assert not strays
    assert len(private_parts(HOME.read_text(encoding="utf-8"))) > 20


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "from torch._ops import OpOverload",
        "from torch.fx.experimental import _config",
        "x = torch._C._get_mkldnn_enabled()",
        "x = torch.ops.aten._to_copy.default",
        "x = module._parameters",
        "x = program._guards_code",
        "x = import_module('torch._dynamo')",
    ],
)
def test_one_elsewhere_would_be_seen(line: str) -> None:
    assert private_parts(line)


def test_the_list_of_what_may_be_used_names_nothing_that_is_not() -> None:
    for name, parts in ELSEWHERE.items():
        assert parts <= private_parts((ROOT / name).read_text(encoding="utf-8")) | {
            "_qkv_same_embed_dim"
        }


class Net(nn.Module):
    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.register_buffer("kept", torch.ones(4))
        self.register_buffer("left", torch.ones(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.relu(self.mix(x)) + self.kept
        return found


def captured(module: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(module.eval(), (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))


def test_scan_is_a_loop() -> None:
    def turn(state: Tensor, chunk: Tensor) -> tuple[Tensor, Tensor]:
        return state + chunk, 2 * state

    last, outputs = inside.scan(turn, torch.zeros(1), torch.arange(3.0).reshape(3, 1))
    assert last.tolist() == [3.0]
    assert outputs.flatten().tolist() == [0.0, 0.0, 2.0]


def test_operators_and_their_schemas() -> None:
    program = captured(Net(), torch.ones(3, 4))
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert targets
    assert all(isinstance(target, inside.OpOverload) for target in targets)
    assert not isinstance(torch.ops.higher_order.cond, inside.OpOverload)
    assert isinstance(torch.ops.higher_order.cond, inside.HigherOrderOperator)
    assert inside.schema_of(torch.ops.aten.add_.Tensor).is_mutable
    assert not inside.schema_of(torch.ops.aten.add.Tensor).is_mutable
    assert inside.schema_of(torch.ops.aten.add_.Tensor).arguments[0].alias_info.is_write
    inside.forget_dispatches(torch.ops.aten.gru.input)


class Casts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float64) * 2


def test_the_operators_around_a_cast() -> None:
    program = captured(Casts(), torch.ones(3, 4))
    targets = {node.target for node in program.graph.nodes}
    assert inside.ASSERT_TENSOR_METADATA in targets
    again = {node.target for node in program.run_decompositions().graph.nodes}
    assert inside.CAST_OF_A_TRACE in again


def test_a_dispatch_mode_sees_operators_and_trees_are_walked() -> None:
    seen = []

    class Seeing(inside.TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Seeing():  # type: ignore[no-untyped-call]
        torch.ones(2) + 1
    assert torch.ops.aten.add.Tensor in seen
    assert inside.tree_leaves({"a": [1, (2, 3)]}) == [1, 2, 3]
    assert inside.tree_map(lambda x: x + 1, [1, (2,)]) == [2, (3,)]
    assert inside.tree_map_only(int, lambda x: x + 1, ["a", 2]) == ["a", 3]


def test_onednn_is_off_and_on_again() -> None:
    before = torch._C._get_mkldnn_enabled()
    with inside.without_onednn():
        assert not torch._C._get_mkldnn_enabled()
    assert torch._C._get_mkldnn_enabled() == before


def test_the_tables_of_a_module() -> None:
    net = Net()
    assert list(inside.children_of(net)) == ["mix"]
    assert list(inside.parameters_of(net.mix)) == ["weight", "bias"]
    assert list(inside.buffers_of(net)) == ["kept", "left"]
    assert inside.unsaved_buffers_of(net) == {"left"}
    replacement = nn.Identity()
    inside.children_of(net)["mix"] = replacement
    assert dict(net.named_children()) == {"mix": replacement}
    net.register_forward_hook(lambda *_: None)
    net.register_forward_pre_hook(lambda *_: None)
    net.register_full_backward_hook(lambda *_: None)
    assert [len(hooks) for hooks in inside.hooks_of(net)] == [1, 1, 0, 1]


def test_compiled_modules() -> None:
    net = Net()
    compiled: Any = torch.compile(net)
    assert inside.is_compiled(compiled)
    assert not inside.is_compiled(net)
    assert inside.inside_compiled(compiled) is net
    assert inside.compiled_call_of(net) is None
    net.compile()
    call = inside.compiled_call_of(net)
    assert call is not None
    inside.set_compiled_call(net, None)
    assert inside.compiled_call_of(net) is None
    assert net(torch.ones(1, 4)).shape == (1, 4)
    inside.set_compiled_call(net, call)
    assert inside.compiled_call_of(net) is call


def test_scripted_traced_and_captured_modules() -> None:
    net, x = Net().eval(), torch.ones(2, 4)
    scripted, traced = torch.jit.script(net), torch.jit.trace(net, x)  # type: ignore[no-untyped-call]
    assert [argument.name for argument in inside.forward_schema(scripted).arguments] == [
        "self",
        "x",
    ]
    assert isinstance(traced, inside.TRACED)
    assert not isinstance(scripted, inside.TRACED)
    assert inside.is_captured(captured(net, x).module())
    assert not inside.is_captured(net)


@pytest.mark.parametrize(
    "name", [*inside.CAPTURE_IMPORTS, *inside.PT2_IMPORTS, *inside.ONNX_IMPORTS]
)
def test_what_is_imported_early_exists(name: str) -> None:
    assert importlib.import_module(name).__name__ == name


def test_the_files_of_operators_with_functions_exist() -> None:
    home = Path(torch.__file__).parents[1]
    assert all((home / name).exists() for name in inside.HIGHER_ORDER_FILES)


class ByLength(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.size(0) > 2 else x


def test_guards_are_told_and_forgotten() -> None:
    told: list[object] = []
    with inside.told_of_guards(lambda prefix, condition: told.append(condition)):
        program = captured(ByLength(), torch.ones(5, 4))
    texts = [inside.python_text(condition) for condition in told]
    assert any(re.search(r"> 2|2 <|>= 3|3 <=", text) for text in texts), texts
    inside.forget_guards(program)
    program.range_constraints.update(
        {symbol: inside.range_of(1, 9) for symbol in program.range_constraints}
    )
    assert [(int(r.lower), int(r.upper)) for r in program.range_constraints.values()] == [(1, 9)]
    assert program.module()(torch.ones(2, 4)).tolist() == (2 * torch.ones(2, 4)).tolist()
    inside.import_compiler()
    inside.forget_compiled()


class Chunks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.unfold(0, 2, 2).sum(-1)


def test_a_size_inside_may_be_one() -> None:
    with inside.sizes_may_be_one():
        program = captured(Chunks(), torch.ones(6, 4))
    assert program.module()(torch.ones(2, 4)).shape == (1, 4)


def test_a_program_with_another_graph() -> None:
    program = captured(Net(), torch.ones(3, 4))
    other = inside.replaced(program, program.graph_module, program.graph_signature)
    assert other is not program
    assert str(other.graph) == str(program.graph)


def test_the_exporter_asks_before_it_decomposes_and_promotes() -> None:
    registry = inside.onnx_registry()
    assert torch.ops.aten.relu.default in inside.onnx_operators(registry)
    program, asked = captured(Net(), torch.ones(3, 4)), []

    def undecomposed(given: torch.export.ExportedProgram) -> None:
        asked.append("decompose")

    def promotes_nothing(module: torch.fx.GraphModule) -> bool:
        asked.append("promote")
        return True

    with inside.onnx_exporter(registry, undecomposed, promotes_nothing):
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(program, (torch.ones(3, 4),), dynamo=True, verbose=False)
    assert asked == ["decompose", "promote"]


def test_dtypes_that_operators_promote_to() -> None:
    class Adds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x + x.double())

    found = {
        str(node.target): inside.promoted_dtypes(node)
        for node in captured(Adds(), torch.ones(3, 4)).graph.nodes
        if node.op == "call_function"
    }
    wanted = found["aten.add.Tensor"]
    assert wanted is not None
    assert {dtype for _, dtype in wanted} == {torch.float64}
    assert any(x.dtype == torch.float32 for x, _ in wanted)


def test_saving_a_program_says_what_it_does_through_this_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger=inside.PT2_LOGGER):
        torch.export.save(captured(Net(), torch.ones(3, 4)), io.BytesIO())
    assert {record.name for record in caplog.records} >= {inside.PT2_LOGGER}
