"""TorchScript, by torch.jit.script: control flow and checks stay in the file."""

import warnings
from collections import Counter
from pathlib import Path

import torch

from linattn_export.formats.base import Format, Job, Written
from linattn_runtime_checks.errors import ExportError

_DEBUG_SUFFIX = ".debug_pkl"


def write(job: Job, path: Path) -> Written:
    """See Format.write."""
    with warnings.catch_warnings():
        # torch says at every use that TorchScript is deprecated; the README says it once.
        warnings.filterwarnings("ignore", message="`torch.jit", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="`torch.jit", category=FutureWarning)
        try:
            scripted = torch.jit.script(job.entry)
        except Exception as error:
            raise ExportError(f"{job.subject.name} cannot be scripted: {error}") from error
        for parameter in scripted.parameters():
            parameter.requires_grad_(False)
        scripted.save(str(path))  # type: ignore[no-untyped-call]
        _strip_debug(path)
        loaded = torch.jit.load(str(path))  # type: ignore[no-untyped-call]
    histogram = Counter(node.kind() for node in loaded.inlined_graph.nodes())
    return Written(nodes=histogram.total(), op_histogram=dict(sorted(histogram.items())))


def _strip_debug(path: Path) -> None:
    """Rewrite the archive without its debug records, which hold source paths of this machine."""
    reader = torch._C.PyTorchFileReader(str(path))
    records = {name: reader.get_record(name) for name in reader.get_all_records()}
    del reader
    writer = torch._C.PyTorchFileWriter(str(path))
    for name, content in records.items():
        if not name.endswith(_DEBUG_SUFFIX) and name not in ("version", ".data/serialization_id"):
            writer.write_record(name, content, len(content))
    writer.write_end_of_file()


FORMAT = Format(
    name="torchscript",
    title="TorchScript (torch.jit.script)",
    file_name="model.pt",
    unavailable=lambda: None,
    write=write,
)
