"""torch.export's ExportedProgram."""

import io
import logging
import warnings
from collections import Counter
from pathlib import Path

import torch

from linattn.torch_internals import PT2_IMPORTS, PT2_LOGGER
from linattn_export.formats.base import Format, Job, Written
from linattn_runtime_checks.contract.errors import ExportError


def write(job: Job, path: Path) -> Written:
    """See Format.write."""
    program = job.program
    program.example_inputs = None  # they would be stored: megabytes, at long fixed lengths
    # To memory first: on a full disk torch's own writer aborts the process.
    content = io.BytesIO()
    logger = logging.getLogger(PT2_LOGGER)
    logger.addFilter(_says_more)
    try:
        torch.export.save(program, content)
    finally:
        logger.removeFilter(_says_more)
    path.write_bytes(content.getvalue())
    with warnings.catch_warnings():
        # Torch 2.12 says that nobody should write into what it has read; nobody does.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        loaded = torch.export.load(path)
    for name in ("batch", "sequence"):
        size = job.variant.size(name)
        if not size.fixed:
            _require_range(job, loaded, (size.low, size.high), name)
    calls = [node for node in loaded.graph.nodes if node.op == "call_function"]
    histogram = Counter(str(node.target) for node in calls)
    return Written(nodes=len(calls), op_histogram=dict(sorted(histogram.items())), notes=job.notes)


def _says_more(record: logging.LogRecord) -> bool:
    """Not that a scan has no further inputs."""
    return "given empty list" not in record.getMessage()


def _require_range(
    job: Job, program: torch.export.ExportedProgram, declared: tuple[int, int], name: str
) -> None:
    found = [(int(r.lower), int(r.upper)) for r in program.range_constraints.values()]
    if declared not in found:
        raise ExportError(
            f"{job.subject.name} as pt2 {job.variant.name}: axis {name} was asked for as "
            f"{declared[0]}:{declared[1]}, the file says {found}"
        )


FORMAT = Format(
    name="pt2",
    title="torch.export ExportedProgram",
    file_name="model.pt2",
    unavailable=lambda: None,
    write=write,
    imports=PT2_IMPORTS,
)
