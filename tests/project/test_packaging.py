import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from roots import ROOT

PACKAGES = {
    "linattn": ROOT / "linattn",
    "linattn_models": ROOT / "models" / "linattn_models",
    "linattn_export": ROOT / "export" / "linattn_export",
    "linattn_runtime_checks": ROOT / "runtime_checks" / "linattn_runtime_checks",
}
MAY_IMPORT: dict[str, set[str]] = {
    "linattn": {"linattn_runtime_checks.contract"},  # the verdict's yardstick, which needs numpy
    "linattn_models": {"linattn"},
    "linattn_export": {"linattn", "linattn_models", "linattn_runtime_checks"},
    "linattn_runtime_checks": set(),
}
TORCH_ALLOWED_INSIDE_FUNCTIONS = {"torch_runtimes.py"}
TABLES = {
    "linattn/methods": ("linattn.methods", "METHODS", set()),
    "linattn/layers": (
        "linattn.layers",
        "LAYERS",
        {"base.py", "definition.py", "delta_rule.py", "options.py", "start.py"},
    ),
    "export/linattn_export/formats": (
        "linattn_export.formats",
        "FORMATS",
        {
            "base.py",
            "opset17.py",
            "decomposition.py",
            "one_node.py",
            "folding.py",
            "ends.py",
            "onnx_recurrences.py",
            "opset_stamp.py",
            "stable.py",
        },
    ),
}


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module.split(".")[0]}
    return set()


def all_imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return set().union(*(imported(node) for node in ast.walk(tree)))


def top_level_imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return set().union(*(imported(node) for node in tree.body))


def modules_imported(path: Path) -> set[str]:
    """The modules of a file's imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def not_allowed(module: str, package: str) -> bool:
    """Whether ``module`` is of another of our packages, and of no part that may be imported."""
    allowed = {package, *MAY_IMPORT[package]}
    ours = module.split(".")[0] in PACKAGES
    return ours and not any(f"{module}.".startswith(f"{part}.") for part in allowed)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in PACKAGES[package].rglob("*.py")
        if (found := [name for name in modules_imported(path) if not_allowed(name, package)])
    }
    assert not wrong


def test_an_import_the_other_way_would_be_seen() -> None:
    assert not_allowed("linattn_runtime_checks.judging.artifact", "linattn")
    assert not not_allowed("linattn_runtime_checks.contract.verdict", "linattn")
    assert not_allowed("linattn.methods", "linattn_runtime_checks")
    assert not not_allowed("torch", "linattn_runtime_checks")


def test_the_checks_import_torch_in_its_runtimes_only() -> None:
    for path in PACKAGES["linattn_runtime_checks"].rglob("*.py"):
        assert "torch" not in top_level_imports(path), path
        if path.name not in TORCH_ALLOWED_INSIDE_FUNCTIONS:
            assert "torch" not in all_imports(path), path


def test_importing_linattn_without_torch_names_the_extra() -> None:
    code = "import sys; sys.modules['torch'] = None; import linattn"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'linattn[export]'" in result.stderr


@pytest.mark.parametrize("folder", TABLES)
def test_every_plug_in_file_is_in_its_table(folder: str) -> None:
    module, table, helpers = TABLES[folder]
    files = {p.name for p in (ROOT / folder).glob("*.py")} - {"__init__.py"} - helpers
    records = getattr(__import__(module, fromlist=[table]), table)
    assert len(files) == len(records)


def test_public_names_are_what_all_says() -> None:
    import linattn

    assert all(hasattr(linattn, name) for name in linattn.__all__)
    assert len(set(linattn.__all__)) == len(linattn.__all__)


@pytest.mark.parametrize(
    "command", ["linattn_export", "linattn_runtime_checks"], ids=["export", "check"]
)
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['x', '--help']\n"
        f"from {command}.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as e:\n    assert not e.code\n"
        "heavy = {'torch', 'onnx', 'onnxruntime', 'numpy', 'pydantic'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_the_wheel_holds_the_four_packages_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
    weights = [name for name in names if name.startswith("linattn_models/weights/digits/")]
    assert len(weights) == 7
    for name in ("bytes/gated_delta", "bytes/held_out", "langid/elu", "langid/held_out"):
        assert f"linattn_models/weights/{name}.safetensors" in names
    page = "linattn_runtime_checks/report/html/templates/"
    kinds = {Path(name).suffix for name in names if name.startswith(page)}
    assert kinds == {".j2", ".css", ".js"}
    assert not [name for name in names if "training" in name or "test" in Path(name).parts]
