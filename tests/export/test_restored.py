"""What a build leaves behind in its process: nothing, however it ends."""

import logging
import os
import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from linattn_export import export_module
from linattn_export.build.pipeline import build
from linattn_export.live_module.restored import restored
from linattn_export.options.request import BuildRequest
from linattn_runtime_checks.contract.errors import ExitCode, LinattnError

SPEC: dict[str, Any] = {
    "symbols": {"batch": "1:3", "sequence": "1:9"},
    "inputs": {"x": {"shape": ["batch", "sequence", 4]}},
}


class Meddler(nn.Module):
    """Changes whatever is global each time it runs, and ends as it is told."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.end = end
        self.runs: list[int] = []
        self.mix.register_forward_hook(lambda part, inputs, output: self.runs.append(1))

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            meddle()
            if self.end == "interrupt" and x.size(1) > 8:
                raise KeyboardInterrupt
            if self.end == "refusal" and x.size(1) > 8:
                raise ValueError("no more")
        mixed: Tensor = self.mix(x)
        return mixed


def meddle() -> None:
    torch.set_num_threads(1)
    torch.rand(1)
    np.random.rand()
    random.random()
    np.seterr(all="ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    logging.getLogger("torch.onnx").addFilter(lambda record: True)
    warnings.simplefilter("ignore")
    sys.path.insert(0, "/nowhere")
    os.environ["LINATTN_TEST"] = "1"
    os.environ.pop("LINATTN_TEST_GONE", None)


def everything() -> dict[str, Any]:
    """All that is global and that a build, or the module in it, might change."""
    loggers = [x for x in logging.root.manager.loggerDict.values() if isinstance(x, logging.Logger)]
    return {
        "threads": torch.get_num_threads(),
        "threads between operators": torch.get_num_interop_threads(),
        "torch numbers": torch.get_rng_state().numpy().tobytes(),
        "numpy numbers": repr(np.random.get_state()),
        "numpy errors": np.geterr(),
        "python numbers": random.getstate(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warnings": ([*warnings.filters], warnings.showwarning),
        "loggers": {x.name: (x.level, x.propagate, x.disabled, [*x.filters]) for x in loggers},
        "paths": [*sys.path],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "streams": (sys.stdout, sys.stderr, sys.excepthook, sys.gettrace()),
        "interrupts": signal.getsignal(signal.SIGINT),
        "global hooks": [
            dict(getattr(nn.modules.module, name))
            for name in ("_global_forward_hooks", "_global_forward_pre_hooks")
        ],
    }


def inside(module: nn.Module) -> dict[str, Any]:
    """All that a module holds."""
    return {
        name: {
            key: [*value.items()] if isinstance(value, dict) else
            [*value] if isinstance(value, list) else value
            for key, value in vars(part).items()
        }
        for name, part in module.named_modules()
    }  # fmt: skip


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    if "loggers" in after:
        after["loggers"] = {k: v for k, v in after["loggers"].items() if k in before["loggers"]}
    return [key for key in after if repr(after[key]) != repr(before.get(key))]


@pytest.mark.parametrize("end", ["success", "refusal", "interrupt"])
def test_everything_is_as_it_was(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINATTN_TEST_GONE", "here")
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    module = Meddler(end)
    module.mix.bias.requires_grad_(False)
    outside, within = everything(), inside(module)
    options: dict[str, Any] = {"formats": ["onnx"], "latency": False, "quiet": True}
    try:
        if end == "success":
            report = export_module(module, SPEC, tmp_path / "out", **options)
            assert report.exit_code is ExitCode.PASS, report.all_findings()
        else:
            kind = KeyboardInterrupt if end == "interrupt" else LinattnError
            with pytest.raises(kind):
                export_module(module, SPEC, tmp_path / "out", **options)
        assert differences(outside, everything()) == []
        assert differences(within, inside(module)) == []
    finally:
        torch.set_num_threads(threads)


def test_a_build_from_a_factory_leaves_no_path_of_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.toml").write_text("[inputs.x]\nshape = [2, 3, 8]\n")
    (tmp_path / "no_net_of_restored.py").write_text("def make():\n    return 3\n")
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    request = BuildRequest(
        output=tmp_path / "out", module="no_net_of_restored:make", inputs=tmp_path / "x.toml"
    )
    with pytest.raises(LinattnError, match="returned int 3"):
        build(request)
    assert sys.path == before


def test_what_is_changed_within_is_restored_after_an_error() -> None:
    before = everything()

    def fails() -> None:
        with restored():
            meddle()
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert differences(before, everything()) == []


_INTERRUPTED = """
import importlib.abc, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
import torch
from linattn_export import export_module

class Presses(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

spec = {spec!r}
net = torch.nn.Linear(4, 4)
net.forward = lambda x: torch.nn.functional.linear(x, net.weight, net.bias)
sys.meta_path.insert(0, Presses())
options = dict(formats=[{format!r}], latency=False, quiet=True, check=False)
try:
    export_module(net, spec, {out!r}, **options)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
print(export_module(net, spec, {out!r}, **options).verdict)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("onnxscript.ir", "onnx"),
        ("torch._dynamo.variables", "pt2"),
        ("onnx.checker", "onnx"),
        ("onnxscript.onnx_opset", "onnx"),
        ("matplotlib.colors", "onnx"),
        ("torch._functorch.partitioners", "pt2"),
    ],
)
def test_an_import_that_is_interrupted_does_not_break_the_next_export(
    name: str, format: str, tmp_path: Path
) -> None:
    code = _INTERRUPTED.format(name=name, format=format, spec=SPEC, out=str(tmp_path / "out"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.split("\n")[:2] == ["interrupted", "UNVERIFIED"], done.stdout + done.stderr
