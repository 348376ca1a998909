"""ONNX Runtime on CPU and on CUDA, with its graph optimiser off and on."""

import re
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from linattn_runtime_checks.contract.errors import EnvironmentProblem, ExportError
from linattn_runtime_checks.contract.manifest import LABELS, Artifact, TensorSpec
from linattn_runtime_checks.cost.certificate import CostCertificate, unknown
from linattn_runtime_checks.runtimes.base import RunFailed, Runtime, SessionOptions, Tensors
from linattn_runtime_checks.runtimes.onnx_program import onnx_program
from linattn_runtime_checks.runtimes.placement import Placement, prove
from linattn_runtime_checks.runtimes.side_files import refuse_other_data

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
LEVELS = {"optimizer-off": "ORT_DISABLE_ALL", "optimizer-on": "ORT_ENABLE_ALL"}
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
}
# A model of one Add, opset 14, IR 7: opening it shows whether a provider really starts.
_PROBE = bytes.fromhex(
    "080712003a390a0e0a01780a01781201792203416464120570726f62655a0f0a0178120a0a080801"
    "12040a020801620f0a0179120a0a08080112040a02080142040a00100e"
)


class OrtSession:
    """An onnxruntime.InferenceSession that runs on the provider asked for, or not at all."""

    def __init__(
        self,
        path: Path,
        options: SessionOptions,
        provider: str,
        profile: str | None = None,
        beside: Sequence[str] = (),
    ) -> None:
        import onnxruntime as ort

        refuse_other_data(path, beside)
        settings = ort.SessionOptions()
        settings.graph_optimization_level = getattr(
            ort.GraphOptimizationLevel, LEVELS[options.mode]
        )
        settings.intra_op_num_threads = options.threads
        # Idle workers that spin would take the cores from whatever runs next in this process.
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        settings.log_severity_level = 4  # failures arrive as exceptions; the log would repeat them
        if profile is not None:
            settings.enable_profiling = True
            settings.profile_file_prefix = profile
        try:
            # Without the fallback: it prints to stdout and goes on with the CPU.
            self.session = ort.InferenceSession(
                str(path), settings, providers=_provider_list(provider), enable_fallback=0
            )
        except Exception as error:
            reason = _first_line(error)
            raise ExportError(
                f"ONNX Runtime cannot load {path.name}: {reason}{_version_hint(reason)}"
            ) from error
        require_provider(provider, self.session.get_providers())
        self._outputs = [output.name for output in self.session.get_outputs()]

    def run(self, inputs: Tensors) -> Tensors:
        """See Session."""
        try:
            outputs = self.session.run(self._outputs, inputs)
        except Exception as error:
            raise RunFailed(_first_line(error)) from error
        return dict(zip(self._outputs, outputs, strict=True))

    def signature(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """See Session."""
        return (
            [_spec(item) for item in self.session.get_inputs()],
            [_spec(item) for item in self.session.get_outputs()],
        )

    def labels(self) -> str | None:
        """See Session."""
        found: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        return found.get(LABELS)

    def providers(self) -> list[str]:
        """See Session."""
        return list(self.session.get_providers())


def require_provider(asked: str, got: list[str]) -> None:
    """ONNX Runtime falls back to the CPU with a log line; here that is an error.

    Raises:
        EnvironmentProblem: ``asked`` is not the first choice of what is in force.
    """
    if not got or got[0] != asked:
        raise EnvironmentProblem(
            f"{asked} was asked for, but the session runs on {', '.join(got) or 'nothing'}; "
            "check the driver and the CUDA and cuDNN libraries, or ask for ort-cpu"
        )


def conflict() -> str | None:
    """Both wheels installed: whichever came last has overwritten the other's files."""
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if len(installed) < 2:
        return None
    return (
        "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; "
        "run: pip uninstall -y onnxruntime onnxruntime-gpu, then install one of "
        "'linattn[cpu]' and 'linattn[cuda]'"
    )


def cpu_unavailable() -> str | None:
    """See Runtime.unavailable."""
    if (problem := conflict()) is not None:
        return problem
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        return f"onnxruntime cannot be imported ({error}); run: pip install 'linattn[cpu]'"
    return None


def cuda_unavailable() -> str | None:
    """See Runtime.unavailable."""
    if (problem := cpu_unavailable()) is not None:
        return problem.replace("linattn[cpu]", "linattn[cuda]")
    import onnxruntime as ort

    if CUDA not in ort.get_available_providers():
        return (
            f"the installed onnxruntime {ort.__version__} has no {CUDA} (it has "
            f"{', '.join(ort.get_available_providers())}); run: pip uninstall -y onnxruntime, "
            "then: pip install 'linattn[cuda]'"
        )
    _preload(ort)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            _PROBE, settings, providers=_provider_list(CUDA), enable_fallback=0
        )
        require_provider(CUDA, session.get_providers())
    except EnvironmentProblem as error:
        return str(error)
    except Exception as error:
        return f"{CUDA} does not start: {_cause(error)}; check the driver and CUDA libraries"
    return None


def _provider_list(provider: str) -> list[Any]:
    if provider == CUDA:
        # TF32 keeps 10 bits of the mantissa: a float32 artifact is judged without it.
        return [(CUDA, {"use_tf32": "0"}), CPU]
    return [CPU]


def _preload(ort: Any) -> None:
    """Load the CUDA and cuDNN libraries of pip's nvidia packages, where there are any."""
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()


def _installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _spec(item: Any) -> TensorSpec:
    return TensorSpec(
        name=item.name,
        dtype=_DTYPES.get(item.type, item.type),
        shape=["" if axis is None else axis for axis in item.shape],
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _cause(error: Exception) -> str:
    """What CUDA said, without the source lines and the host name that ONNX Runtime adds."""
    found = re.search(r"(CUDA|CUDNN|CUBLAS) failure \d+: [^;]+", str(error))
    return found.group(0).strip() if found else _first_line(error)


def _version_hint(reason: str) -> str:
    """The way out when a file is too new for the runtime; the text of the error says no more."""
    if "IR version" not in reason and "opset" not in reason.lower():
        return ""
    return "; upgrade onnxruntime, or build with the default --opset 18, which is IR 8"


def _open_cpu(path: Path, artifact: Artifact, options: SessionOptions) -> OrtSession:
    return OrtSession(path, options, CPU, beside=_beside(artifact))


def _open_cuda(path: Path, artifact: Artifact, options: SessionOptions) -> OrtSession:
    return OrtSession(path, options, CUDA, beside=_beside(artifact))


def _beside(artifact: Artifact) -> list[str]:
    return [Path(file.path).name for file in artifact.side_files]


def _placed(
    path: Path, artifact: Artifact, options: SessionOptions, inputs: Tensors, provider: str
) -> Placement:
    casts = (artifact.op_histogram or {}).get("Cast", 0)

    def open_profiled(prefix: str) -> Any:
        return OrtSession(path, options, provider, prefix, _beside(artifact)).session

    return prove(open_profiled, inputs, provider, casts)


def _prepare() -> None:
    import onnxruntime  # noqa: F401


def _certify(path: Path, artifact: Artifact, session: OrtSession) -> list[CostCertificate]:
    """As exported, and as the graph optimiser leaves it; nothing without the onnx package."""
    if find_spec("onnx") is None:
        return []
    if artifact.side_files:
        return [unknown("weights beside the file: too large to run with every tensor as an output")]
    from linattn_runtime_checks.cost.graph import certify_onnx

    return [certify_onnx(path, artifact), certify_onnx(path, artifact, optimized=True)]


ORT_CPU = Runtime(
    name="ort-cpu",
    title="ONNX Runtime, CPUExecutionProvider",
    formats=("onnx",),
    modes=tuple(LEVELS),
    keeps_memory=True,
    unavailable=cpu_unavailable,
    prepare=_prepare,
    open=_open_cpu,
    program=onnx_program(_provider_list(CPU)),
    placed=partial(_placed, provider=CPU),
    certify=_certify,
    judges_kernels=True,
    declares_labels=True,
    onnx_graphs=True,
)
ORT_CUDA = Runtime(
    name="ort-cuda",
    title="ONNX Runtime, CUDAExecutionProvider, TF32 off",
    formats=("onnx",),
    modes=tuple(LEVELS),
    keeps_memory=True,
    unavailable=cuda_unavailable,
    prepare=_prepare,
    open=_open_cuda,
    program=onnx_program(_provider_list(CUDA)),
    placed=partial(_placed, provider=CUDA),
    certify=_certify,
    declares_labels=True,
    onnx_graphs=True,
)
