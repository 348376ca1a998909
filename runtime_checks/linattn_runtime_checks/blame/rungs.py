"""The rungs of the blame ladder, in order: one line each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung: the artifact format, runtimes and mode that stand for it.

    ``formats`` are the artifacts whose ladder it is part of; empty means all. ``absent`` says why
    it may be missing.
    """

    name: str
    format: str
    runtimes: tuple[str, ...]
    formats: tuple[str, ...] = ()
    mode: str | None = None
    absent: str

    def last_for(self, artifact_format: str, runtime: str) -> bool:
        """Whether the ladder of such an artifact on this runtime ends here.

        On a runtime that no rung stands for it ends with the first of the format.
        """
        of_format = [rung for rung in RUNGS if rung.format == artifact_format]
        of_runtime = [rung for rung in of_format if runtime in rung.runtimes]
        return self in (of_runtime[-1:] or of_format[:1])


RUNGS = (
    Rung(
        name="exported program",
        format="pt2",
        runtimes=("pt2",),
        formats=("pt2", "onnx"),
        absent="the folder has no pt2 artifact of this variant, or torch is not installed",
    ),
    Rung(
        name="torchscript",
        format="torchscript",
        runtimes=("torchscript",),
        formats=("torchscript", "onnx"),
        absent="the folder has no TorchScript artifact of this variant, or torch is not installed",
    ),
    Rung(
        name="onnx",
        format="onnx",
        runtimes=("ort-cpu",),
        formats=("onnx",),
        mode="optimizer-off",
        absent="the runtime ort-cpu was not used",
    ),
    Rung(
        name="optimizer",
        format="onnx",
        runtimes=("ort-cpu",),
        formats=("onnx",),
        mode="optimizer-on",
        absent="the runtime ort-cpu was not used",
    ),
    Rung(
        name="provider",
        format="onnx",
        runtimes=("ort-cuda",),
        formats=("onnx",),
        absent="the runtime ort-cuda was not used",
    ),
)
