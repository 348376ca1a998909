"""The forms in which an ONNX file holds a recurrence: one line each.

portable   products and a Scan over chunks: standard operators, every runtime
ms         one com.microsoft.LinearAttention: a kernel of ONNX Runtime's own
std27      one ai.onnx LinearAttention, standard since opset 27
"""

from dataclasses import dataclass

from linattn_export.options.variants import PORTABLE
from linattn_runtime_checks.contract.errors import EnvironmentProblem, UsageError, unknown

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form.

    ``since`` is the first release of ONNX Runtime that loads it, as major, minor, patch; the other
    fields say what else takes it, as measured.
    """

    name: str
    title: str
    domain: str
    since: tuple[int, int, int]
    opset: int | None
    ir_version: int | None
    node: str
    browser: str
    openvino: str


FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        Form(
            name=PORTABLE,
            title="matrix products and a Scan over chunks, standard operators",
            domain="",
            since=(1, 15, 0),
            opset=None,
            ir_version=None,
            node="onnxruntime-node 1.15 and later",
            browser="onnxruntime-web 1.15 and later",
            openvino="2026.4 takes the rest; its Scan was not tried",
        ),
        Form(
            name="ms",
            title="one com.microsoft.LinearAttention",
            domain="com.microsoft",
            since=(1, 25, 1),
            opset=None,
            ir_version=None,
            node="onnxruntime-node 1.30 (earlier not tried)",
            browser="onnxruntime-web 1.30, wasm and WebGPU (earlier not tried)",
            openvino="none: no conversion rule in 2026.4",
        ),
        Form(
            name="std27",
            title="one ai.onnx LinearAttention, opset 27",
            domain="",
            since=(1, 32, 0),
            opset=27,
            ir_version=13,
            node="none: 1.30 ends with opset 26",
            browser="none: 1.30 ends with opset 26",
            openvino="none: no conversion rule in 2026.4",
        ),
    )
}


def release(version: tuple[int, ...]) -> str:
    """As it is written."""
    return ".".join(map(str, version)).removesuffix(".0")


def parse_release(flag: str, text: str) -> tuple[int, int, int]:
    """``1.25.1`` or ``1.25``.

    Raises:
        UsageError: another form.
    """
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isdigit() for part in parts):
        raise UsageError(f"{flag} must be a release such as 1.25.1, got {text!r}")
    numbers = [int(part) for part in parts] + [0]
    return numbers[0], numbers[1], numbers[2]


def chosen_forms(names: tuple[str, ...], min_ort: str | None) -> tuple[str, ...]:
    """The forms to write, ``auto`` replaced by the fastest that ``min_ort`` loads.

    That is ``ms`` from its first release on, and the portable one before; ``std27`` has no kernel
    of its own on a CPU and is never the fastest.

    Raises:
        UsageError: an unknown form; ``auto`` without a release, or a release without ``auto``.
    """
    found = []
    for name in dict.fromkeys(names):
        if name == AUTO:
            if min_ort is None:
                raise UsageError(
                    "`onnx_forms=['auto']` needs `min_ort`, the oldest ONNX Runtime that must load "
                    "the files, such as `min_ort='1.25.1'`"
                )
            oldest = parse_release("`min_ort`", min_ort)
            name = "ms" if oldest >= FORMS["ms"].since else PORTABLE
        if name not in FORMS:
            raise UsageError(unknown("ONNX form", name, (*FORMS, AUTO)))
        found.append(name)
    if min_ort is not None:
        oldest = parse_release("`min_ort`", min_ort)
        for name in found:
            if FORMS[name].since > oldest:
                raise UsageError(
                    f"`onnx_forms={[name]}` loads from ONNX Runtime {release(FORMS[name].since)} "
                    f"on, `min_ort` asks for {min_ort}; use `onnx_forms=['portable']` or auto"
                )
    return tuple(dict.fromkeys(found))


def require_runtime(names: tuple[str, ...]) -> None:
    """Raise EnvironmentProblem if the installed ONNX Runtime cannot load one of the forms."""
    try:
        import onnxruntime
    except ImportError:
        return  # nothing here will load them; the report says so
    installed = parse_release("onnxruntime", ".".join(onnxruntime.__version__.split(".")[:3]))
    for name in names:
        if FORMS[name].since > installed:
            raise EnvironmentProblem(
                f"`onnx_forms={[name]}` loads from ONNX Runtime {release(FORMS[name].since)} on, "
                f"installed is {onnxruntime.__version__}; run: pip install -U onnxruntime, or use "
                "`onnx_forms=['portable']`, or `check=False` to write it unjudged"
            )
