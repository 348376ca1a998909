"""The files beside an ONNX file, which hold its weights where they are many."""

import re
from collections.abc import Sequence
from pathlib import Path

from linattn_runtime_checks.contract.errors import ExportError

# How protobuf writes the name of the file that holds a tensor outside of the model, and its size.
_EXTERNAL = re.compile(rb"\x0a\x08location\x12(.)", re.DOTALL)


def refuse_other_data(path: Path, beside: Sequence[str]) -> None:
    """A side file without a hash in the manifest: its weights could be anybody's.

    Raises:
        ExportError: the file keeps tensors in one that is not among ``beside``.
    """
    if not path.is_file():
        return
    for found in _EXTERNAL.finditer(path.read_bytes()):
        size = found.group(1)[0]
        name = found.string[found.end() : found.end() + size].decode(errors="replace")
        if size > 127 or name not in beside:
            raise ExportError(
                f"{path.name} keeps tensors in another file, {name!r}, which the manifest does "
                "not vouch for; save it as one file (onnx.save with save_as_external_data=False) "
                "and build again"
            )
