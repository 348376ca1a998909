"""The layers that are timed: made, exported and opened as the product does it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.timing import Call
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.runtimes.base import SessionOptions
from linattn_runtime_checks.runtimes.onnx_runtime import CPU, OrtSession

Array = NDArray[np.float32]
THREADS = 2
LINEAR = ("elu", "relu", "taylor", "efficient", "linformer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Widths of the layer; ``max_length`` bounds the dynamic artifact and is Linformer's N_max."""

    d_model: int = 512
    heads: int = 8
    rank: int = 256
    max_length: int = 16384

    @property
    def width(self) -> int:
        """Of one head."""
        return self.d_model // self.heads

    def stated(self) -> str:
        """For the page."""
        return (
            f"fp32, {THREADS} threads that do not spin, d_model {self.d_model}, "
            f"{self.heads} heads, batch 1"
        )


FULL = Sizes()
QUICK = Sizes(d_model=32, heads=4, rank=8, max_length=256)


def make_layer(method: str, sizes: Sizes, lengths: tuple[int, ...] = ()) -> Subject:
    """The model ``layer`` in its dynamic variant, and in fixed ones for ``lengths``."""
    options: dict[str, object] = {"rank": sizes.rank, "max_length": sizes.max_length}
    request = BuildRequest(
        models=("layer",),
        methods=(method,),
        lengths=lengths,
        dynamic=f"1:{sizes.max_length}",
        d_model=sizes.d_model,
        heads=sizes.heads,
        options={method: options} if method == "linformer" else {},
    )
    return make_subjects(request)[0]


def export(subject: Subject, folder: Path, variant: int = 0) -> Path:
    """Write one variant as ONNX; the first is the dynamic one."""
    chosen = subject.variants[variant]
    path = folder / f"{subject.method}-{chosen.name}.onnx"
    FORMATS["onnx"].write(Job(subject=subject, variant=chosen, opset=18), path)
    return path


def open_session(path: Path, profile: Path | None = None) -> OrtSession:
    """A session as users run it: graph optimiser on."""
    options = SessionOptions(mode="optimizer-on", threads=THREADS)
    return OrtSession(path, options, CPU, None if profile is None else str(profile))


def call_of(session: OrtSession, inputs: Mapping[str, Array]) -> Call:
    """One run on these inputs."""
    feed: Any = dict(inputs)

    def call() -> object:
        return session.run(feed)

    return call


def hidden_states(length: int, sizes: Sizes) -> Array:
    """``[1, N, M]`` from N(0, 1)."""
    drawn = np.random.default_rng(length).standard_normal((1, length, sizes.d_model))
    return drawn.astype(np.float32)
