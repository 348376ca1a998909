"""A flag is the metadata of one field, and everything else that shows it follows from that."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer.main

import linattn_export.build.from_python as from_python
import linattn_export.cli
import linattn_runtime_checks.cli
from conftest import CallCli
from linattn_export import export_module
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.errors import foreign
from linattn_runtime_checks.contract.flags import as_flags, default_of, flag, flags_of, recorded
from linattn_runtime_checks.options import Options
from rooms import ROOMS
from roots import ROOT

_BUILD: Any = typer.main.get_command(linattn_export.cli.app)
COMMANDS: dict[type, Any] = {
    BuildRequest: _BUILD.commands["build"],
    Options: typer.main.get_command(linattn_runtime_checks.cli.app),
}
SECTIONS = {BuildRequest: "## linattn-export build\n", Options: "## linattn-check\n"}
NO_FLAG = {"shrink"}
"""Fields that a caller in Python alone sets."""
NO_FIELD = {BuildRequest: {"--json", "--help"}, Options: {"--help"}}
"""Flags of the command line alone: what it prints."""


def spelled(record: type) -> set[str]:
    """Every spelling of every flag that the fields of ``record`` define."""
    names: set[str] = set()
    for _, found in flags_of(record).values():
        names |= {part for name in found.names for part in name.split("/")}
        names |= {found.off.name} if found.off is not None else set()
    return names


@pytest.mark.parametrize("record", COMMANDS)
def test_every_field_is_a_flag_and_every_flag_is_of_a_field(record: Any) -> None:
    assert {each.name for each in fields(record)} - set(flags_of(record)) <= NO_FLAG
    offered = {
        name
        for parameter in COMMANDS[record].params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    assert offered - NO_FIELD[record] == spelled(record)


def request_of(record: type, words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The dataclass that the command makes of a command line."""
    made: list[Any] = []

    def keep(request: Any, *_: object) -> Any:
        made.append(request)
        raise SystemExit(0)

    monkeypatch.setattr("linattn_runtime_checks.command.check", keep)
    monkeypatch.setattr("linattn_runtime_checks.command.self_test", keep)
    monkeypatch.setattr("linattn_export.build.pipeline.build", keep)
    with pytest.raises(SystemExit):
        COMMANDS[record].main(words, standalone_mode=False)
    return made[0]


def test_a_command_without_flags_is_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert request_of(BuildRequest, [], monkeypatch) == BuildRequest()
    assert request_of(Options, ["x"], monkeypatch) == Options(folder=Path("x"))


@pytest.mark.parametrize(
    "request_",
    [
        BuildRequest(
            methods=("elu", "relu"), models=("layer", "attention"), formats=("pt2",),
            lengths=(8, 16), dynamic="1:32", batch="1:2", mask=True, d_model=16, heads=2,
            options={"elu": {"eps": 0.5, "normalize": False}, "relu": {"eps": 1}},
            weights=Path("w.safetensors"), seed=3, opset=20, dtype="fp16", entries=("forward",),
            onnx_forms=("ms", "portable"), latency=False, runtimes=("ort-cpu",),
        ),
        BuildRequest(lengths=(), mask=False, check=False),
        BuildRequest(dynamic="", lengths=(8,)),
        BuildRequest(module="nets:make", inputs=Path("x.toml"), dynamic="", lengths=(4,)),
    ],
)  # fmt: skip
def test_the_words_of_a_request_make_it_again(
    request_: BuildRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert request_of(BuildRequest, recorded(request_), monkeypatch) == request_


def test_what_is_not_recorded_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "-o out --min-ort 1.26 --onnx-form auto --memory-limit 2 -q -v"
    words = line.split()
    assert request_of(BuildRequest, words, monkeypatch) == BuildRequest(
        output=Path("out"), min_ort="1.26", onnx_forms=("auto",), memory_limit=2.0, quiet=True,
        verbose=True,
    )  # fmt: skip
    line = (
        "x --runtime pt2 --no-latency --live --seed 0 --fail-on parity --junit j --json "
        "--summary s --html h --baseline b --repro r --time-limit 5 --memory-limit 2 --in-process "
        "-q -v"
    )
    words = line.split()
    assert request_of(Options, words, monkeypatch) == Options(
        folder=Path("x"), runtimes=("pt2",), latency=False, live=True, seed=0, fail_on="parity",
        junit=Path("j"), json=True, summary=Path("s"), html=Path("h"), baseline=Path("b"),
        repro=Path("r"), time_limit=5.0, memory_limit=2.0, isolate=False, quiet=True, verbose=True,
    )  # fmt: skip
    assert request_of(Options, ["x", "--self-test"], monkeypatch).self_test


def test_a_zero_is_a_value(call_cli: CallCli, tmp_path: Path) -> None:
    done = call_cli("linattn_runtime_checks", tmp_path, "--memory-limit", "0")
    assert "--memory-limit must be above 0, got 0" in done.stderr


@pytest.mark.parametrize("record", COMMANDS)
def test_the_reference_page_holds_every_flag(record: type) -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    section = page.split(SECTIONS[record])[1].split("\n## ")[0]
    assert spelled(record) <= set(re.findall(r"`(--?[a-z-]+)`", section))


class TestExportModule:
    """The Python arguments are fields, with their defaults, types and meaning."""

    PARAMETERS = inspect.signature(export_module).parameters
    OWN = ("module", "inputs", "name")
    """The live module, its SPEC in memory and its name, which no command line can hold."""

    def shared(self) -> Iterator[tuple[inspect.Parameter, Any, Any]]:
        for name, parameter in self.PARAMETERS.items():
            if name not in self.OWN:
                yield parameter, *flags_of(BuildRequest)[name]

    def test_types(self) -> None:
        wider = {
            str(Path): str(Path | str),
            "tuple[str, ...]": "collections.abc.Sequence[str]",
            "tuple[int, ...] | None": "collections.abc.Sequence[int] | None",
        }
        for parameter, of_field, _ in self.shared():
            expected = wider.get(str(of_field.type), str(of_field.type))
            assert str(get_type_hints(export_module)[parameter.name]) == expected

    def test_defaults(self) -> None:
        for parameter, of_field, _ in self.shared():
            default = default_of(of_field)
            assert parameter.default == (str(default) if of_field.type is Path else default)

    def test_meaning(self) -> None:
        written = inspect.getdoc(export_module) or ""
        table = written.split("Args:\n")[1].split("\n\n")[0]
        said = dict(re.findall(r"^    (\w+): (.*(?:\n     .*)*)", table, re.MULTILINE))
        assert list(said) == list(self.PARAMETERS)
        for parameter, _, found in self.shared():
            first = re.split(r"[;.]( |$)", found.about or found.help)[0]
            assert " ".join(said[parameter.name].split()).startswith(first), parameter.name

    def test_every_argument_arrives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[BuildRequest] = []
        monkeypatch.setattr(
            from_python, "build_subjects", lambda request, *_, **__: seen.append(request)
        )
        import torch

        given: dict[str, Any] = {
            "output": Path("out"), "formats": ("pt2",), "lengths": (8,), "runtimes": ("pt2",),
            "dtype": "fp16", "opset": 17, "seed": 5, "check": False, "latency": False,
            "memory_limit": 2.0, "quiet": True,
        }  # fmt: skip
        assert set(given) == {parameter.name for parameter, _, _ in self.shared()}
        export_module(torch.nn.Linear(1, 1), {}, **given)
        assert seen == [BuildRequest(**given, shrink=False)]
        export_module(torch.nn.Linear(1, 1), {})
        assert seen[1] == BuildRequest(shrink=False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`opset` must be 17 to 23", "--opset must be 17 to 23"),
        ("use `opset=18`, please", "use --opset 18, please"),
        ("use `check=False`", "use --no-check"),
        ("`lengths` must be", "-n/--seq-len must be"),
        ("ask for `lengths=[8]`", "ask for -n 8"),
        ("`lengths=()` and `dynamic=''`", "--no-fixed and --no-dynamic"),
        ("`dynamic='1:8'`", "--dynamic 1:8"),
        ("`mask` or `mask=True` or `mask=False`", "--mask/--no-mask or --mask or --no-mask"),
        ("`output='a b'` or another `output`", "-o a b or another -o"),
        ("`entries=['prefill', 'step']`", "--entry prefill --entry step"),
        ("`options={'a': {'b': 1}}`", "--option a.b=1"),
        ("`shrink` and `sequence` and ``opset2``", "`shrink` and `sequence` and ``opset2``"),
        ("`opset=18,` is no value, nor is `check=True`", None),
        ("at nets.py:3 `return x[:, mask]`", None),
    ],
)
def test_fields_in_messages_become_flags(text: str, shown: str | None) -> None:
    assert as_flags(text, BuildRequest) == (text if shown is None else shown)


def test_the_words_of_others_name_no_fields() -> None:
    assert as_flags(foreign("`mask` must be given"), BuildRequest) == "'mask' must be given"


def test_an_unknown_word_of_the_metadata_is_refused() -> None:
    with pytest.raises(TypeError, match="recroded"):
        flag("--x", help="x", recroded="never")


def test_a_user_of_either_reads_the_own_words(call_cli: CallCli, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"^`opset` must be 17 to 23, got 12; "):
        BuildRequest(opset=12)
    done = call_cli("linattn_export", "build", "--opset", "12", "-o", tmp_path / "out")
    assert "linattn-export: --opset must be 17 to 23, got 12; " in done.stderr


FLAG = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|-[omfnqv](?![\w-]))(?!\w)")
ELSEWHERE = ("report", "pytest_plugin")
"""Rooms that address the user of a command line, or have flags of their own."""
ALLOWED = {
    ("capture/program.py", "-n"): "Python code: F.pad and -n % 8",
    ("golden/writing.py", "-n"): "part of the name of a case",
    ("inputs/cases.py", "-n"): "part of the name of a case",
    ("processes/child.py", "-m"): "a flag of Python",
    ("contract/codes.py", "--time-limit"): "docs/codes.md",
    ("contract/codes.py", "--memory-limit"): "docs/codes.md",
    ("judging/baseline.py", "--no-latency"): "stored in a report",
    ("judging/baseline.py", "--json"): "names a command with it",
    ("judging/live.py", "--live"): "printed, the command that repeats a run",
    ("judging/live.py", "--seed"): "printed, the command that repeats a run",
    ("runtimes/onnx_runtime.py", "--opset"): "raised in a child and stored in a report",
}


def flags_in(text: str) -> set[str]:
    """The flags in the strings of a file, but for docstrings and the metadata of fields."""
    tree = ast.parse(text)
    apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "flag":
            apart |= {id(inner) for inner in ast.walk(node)}
    return {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
        for name in FLAG.findall(node.value)
    }


def test_the_engine_speaks_of_fields() -> None:
    found = {
        (path.relative_to(ROOT / package).as_posix(), name)
        for package, rooms in ROOMS.items()
        for room in rooms
        if room not in ELSEWHERE
        for path in (ROOT / package / room).rglob("*.py")
        for name in flags_in(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED)
    models = ROOT / "models" / "linattn_models"
    assert {name for path in models.rglob("*.py") for name in flags_in(path.read_text())} == set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raise UsageError(f"--opset {x} is wrong")', {"--opset"}),
        ('raise UsageError("give -n 8 or -o")', {"-n", "-o"}),
        ('"""Of ``--opset``."""\nx = field(metadata=flag("--opset", help="--x"))', set()),
        ('x = "a --- b-n, well-nigh"', set()),
    ],
)
def test_a_planted_flag_would_be_seen(code: str, found: set[str]) -> None:
    assert flags_in(code) == found


def test_a_field_that_is_required_has_no_default() -> None:
    @dataclass
    class Toy:
        place: Path = field(metadata=flag(metavar="DIR", help="Where."))

    assert default_of(flags_of(Toy)["place"][0]) is MISSING
    assert as_flags("`place` is a file", Toy) == "DIR is a file"
