"""The lines of a program that open an ONNX file and run it; see ``Runtime.program``."""

from collections.abc import Sequence
from typing import Any

_PROGRAM = """\
import onnxruntime as ort

if hasattr(ort, "preload_dlls"):
    ort.preload_dlls()
session = ort.InferenceSession(str(here / FILE), providers={providers!r})
found = session.get_providers()
if found[0] != {first!r}:
    raise RuntimeError(f"{first} was asked for, but the session runs on {{', '.join(found)}}")
names = [output.name for output in session.get_outputs()]
outputs = dict(zip(names, session.run(names, inputs), strict=True))
"""


def onnx_program(providers: Sequence[Any]) -> str:
    """The lines for ``providers``, as onnxruntime takes them; the session must run on the first."""
    first = providers[0] if isinstance(providers[0], str) else providers[0][0]
    return _PROGRAM.format(providers=list(providers), first=first)
