"""TorchScript, by torch.jit.script: control flow and checks stay in the file."""

import inspect
import io
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from linattn_export.capture.program import example_inputs
from linattn_export.formats.base import Format, Job, Written
from linattn_export.live_module.reasons import places_in
from linattn_runtime_checks.contract.errors import ExportError, foreign

_T = TypeVar("_T")
_DEBUG_SUFFIX = ".debug_pkl"
_OF_NONE = ("undefined Tensor", "Unsupported value kind: Tensor", "NoneType")
"""In messages about None where TorchScript expects a tensor."""
_NUMBERED = re.compile(r"/___torch_mangle_\d+\.py$")
_CONSTANT = re.compile(r"  \w+ : Final\[")


def write(job: Job, path: Path) -> Written:
    """See Format.write."""
    with warnings.catch_warnings():
        # torch says at every use that TorchScript is deprecated; the README says it once.
        warnings.filterwarnings("ignore", message="`torch.jit", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="`torch.jit", category=FutureWarning)
        content = _or_refused(job, lambda: _scripted(job))
        path.write_bytes(content)
        loaded = torch.jit.load(str(path))  # type: ignore[no-untyped-call]
        histogram = Counter(node.kind() for node in loaded.inlined_graph.nodes())
        if job.subject.is_own:
            _or_refused(job, lambda: _run_once(loaded, job))
    return Written(nodes=histogram.total(), op_histogram=dict(sorted(histogram.items())))


def _or_refused(job: Job, step: Callable[[], _T]) -> _T:
    """What ``step`` returns; whatever it raises is about the module.

    Raises:
        ExportError: it raised.
    """
    try:
        return step()
    except Exception as error:
        raise ExportError(
            f"{job.subject.name} cannot be scripted: {_reason(error, job.entry)}"
        ) from error


def _scripted(job: Job) -> bytes:
    scripted = torch.jit.script(job.entry)
    for parameter in scripted.parameters():
        parameter.requires_grad_(False)
    # To memory first: on a full disk torch's own writer aborts the process.
    return _reproducible(scripted.save_to_buffer())  # type: ignore[no-untyped-call]


def _run_once(loaded: nn.Module, job: Job) -> None:
    """Some of Python is scripted without a word, and fails whenever it runs."""
    with torch.no_grad():
        loaded(*example_inputs(job.subject, job.variant).values())


def _reason(error: Exception, entry: nn.Module) -> str:
    """What was wrong, the line of own code that torch names last, and a fix where one is known."""
    lines = [line.strip() for line in foreign(str(error)).splitlines() if line.strip()]
    places = places_in(str(error))
    where = f" at {places[-1]}" if places else ""
    said = next((line for line in reversed(lines) if "Error: " in line), (lines or [""])[0])
    return (said or type(error).__name__) + where + _fix(said, entry)


def _fix(said: str, entry: nn.Module) -> str:
    if "Parametrization" in said:
        return (
            "; export a copy whose parametrizations are folded in, with "
            "torch.nn.utils.parametrize.remove_parametrizations(part, name)"
        )
    if not any(words in said for words in _OF_NONE):
        return ""
    for part in entry.modules():
        if type(part).__module__.partition(".")[0] != "torch":
            for parameter in inspect.signature(type(part).forward).parameters.values():
                if parameter.default is None and parameter.annotation is parameter.empty:
                    where = f"{parameter.name} of {type(part).__qualname__}.forward"
                    return (
                        f"; TorchScript takes {where} for a tensor that is always there: write "
                        f"{parameter.name}: Tensor | None = None"
                    )
    return ""


def _reproducible(archive: bytes) -> bytes:
    """The archive without what depends on the machine or the process.

    Debug records hold source paths. Constants of a class are written in the order of a Python set
    of strings, which changes from process to process; here they are sorted. A class whose name is
    taken by what was scripted before gets a number; see :func:`_unnumbered`.
    """
    reader = torch._C.PyTorchFileReader(io.BytesIO(archive))
    kept = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(kept)
    records = {
        name: reader.get_record(name)
        for name in reader.get_all_records()
        if not name.endswith(_DEBUG_SUFFIX) and name not in ("version", ".data/serialization_id")
    }
    for name, content in _unnumbered(records).items():
        if name.endswith(".py"):
            content = _sorted_constants(content.decode()).encode()
        writer.write_record(name, content, len(content))
    writer.write_end_of_file()
    return kept.getvalue()


def _unnumbered(records: dict[str, bytes]) -> dict[str, bytes]:
    """``a/b/___torch_mangle_7.py`` as ``a/b.py``, where the archive has no other ``a/b``.

    The number counts what the process has scripted. In pickles a class is named by GLOBAL, whose
    names end with a newline, so a shorter one fits.
    """
    numbered = [name for name in records if _NUMBERED.search(name)]
    plain = {name: _NUMBERED.sub(".py", name) for name in numbered}
    free = {
        name: other
        for name, other in plain.items()
        if other not in records and list(plain.values()).count(other) == 1
    }
    if not free:
        return records
    words = {_dotted(name): _dotted(other) for name, other in free.items()}
    found = {}
    for name, content in records.items():
        for old, new in words.items():
            if name.endswith(".py"):
                content = content.replace(f"{old}.".encode(), f"{new}.".encode())
            elif name.endswith(".pkl"):
                named = f"c{old}\n".encode()
                if content.count(old.encode()) != content.count(named):
                    return records  # in a string, which has its length before it
                content = content.replace(named, f"c{new}\n".encode())
        found[free.get(name, name)] = content
    return found


def _dotted(record: str) -> str:
    """``code/__torch__/a/b.py`` as the classes in it are called: ``__torch__.a.b``."""
    return record.removeprefix("code/").removesuffix(".py").replace("/", ".")


def _sorted_constants(code: str) -> str:
    lines = code.splitlines(keepends=True)
    runs = itertools.groupby(lines, key=lambda line: _CONSTANT.match(line) is not None)
    return "".join(line for constant, run in runs for line in (sorted(run) if constant else run))


FORMAT = Format(
    name="torchscript",
    title="TorchScript (torch.jit.script)",
    file_name="model.pt",
    unavailable=lambda: None,
    write=write,
    optional=True,
    captured=False,
)
