"""Data flows one way: the rooms of a package, and which of them may import which."""

import ast
import graphlib
from pathlib import Path

import pytest

from rooms import ROOMS
from roots import ROOT


def imports(package: Path) -> dict[str, set[str]]:
    """Module to the modules of the same package that it imports, wherever in the file."""
    files = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts): path
        for path in package.rglob("*.py")
    }
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {name if name in modules else node.module for name in inner}
        found[module] = {name for name in named if name in modules}
    return found


def upwards(package: Path, rooms: tuple[str, ...]) -> list[str]:
    """Every import from a room into one that comes after it, or into none."""
    place = {f"{package.name}.{room}": index for index, room in enumerate(rooms)}

    def room_of(module: str) -> int | None:
        return place.get(".".join(module.split(".")[:2]))

    return [
        f"{module} imports {other}"
        for module, others in imports(package).items()
        for other in others
        if (here := room_of(module)) is not None
        and ((there := room_of(other)) is None or there > here)
        and other != package.name
    ]


@pytest.mark.parametrize("name", ROOMS)
def test_arrows_go_one_way(name: str) -> None:
    package = ROOT / name
    assert {path.parent.name for path in package.glob("*/__init__.py")} == set(ROOMS[name])
    assert upwards(package, ROOMS[name]) == []


@pytest.mark.parametrize("name", ROOMS)
def test_no_files_import_each_other_in_a_circle(name: str) -> None:
    graphlib.TopologicalSorter(imports(ROOT / name)).prepare()  # raises where there is one


def test_an_arrow_upwards_would_be_seen(tmp_path: Path) -> None:
    package = tmp_path / "toy"
    for room, text in {
        "low": "def f() -> None:\n    from toy.high import x\n",
        "high": "from toy import low\nx = low\n",
        "beside": "from toy.high import x\n",
    }.items():
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").write_text(text)
    assert upwards(package, ("low", "high")) == ["toy.low imports toy.high"]
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(imports(package)).prepare()
