"""The artifact contract: what ``linattn_manifest.json`` holds, as pydantic models.

The manifest is the only thing that the export and the checks share; a check never works out again
what the export decided. Schema versions are ``major.minor``: a newer minor is read (unknown fields
are ignored), a newer major is refused.
"""

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from linattn_runtime_checks.contract.checked import LatencyEntry, RuntimeCheck
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import UsageError

FILE_NAME = "linattn_manifest.json"
SCHEMA_VERSION = "1.6"
FloatName = Literal["float64", "float32", "bfloat16", "float16"]
LABELS = "linattn.labels"
"""In an ONNX file's metadata_props: JSON of the artifact's ``labels``."""


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or set(path) & set("\\:\0"):
        raise ValueError(
            f"path {path!r} must be relative, inside the folder of the manifest, with '/' between "
            "its parts"
        )
    return path


RelativePath = Annotated[str, AfterValidator(_inside)]


class Record(BaseModel):
    """Base of all parts of the contract."""

    model_config = ConfigDict(extra="ignore", frozen=False)


class StoredFile(Record):
    """One file of the folder."""

    path: RelativePath
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class TensorSpec(Record):
    """One input or output.

    ``shape`` is what the file declares: numbers, and symbols where it is dynamic. ``axes`` says
    what each axis is, ``batch`` and ``sequence`` also where the file fixes them. ``mask`` marks the
    key padding mask; ``values`` are the lowest and highest whole number that an input was verified
    with, beyond which a table of embeddings ends. ``range`` and ``positive`` say which numbers a
    floating-point input may hold, both ends included, where that is not all of them.
    """

    name: str
    dtype: str
    shape: list[int | str]
    axes: list[int | str] = []
    mask: bool = False
    values: tuple[int, int] | None = None
    range: tuple[float, float] | None = None
    positive: bool = False

    @property
    def is_mask(self) -> bool:
        """Whether it is the key padding mask; before schema 1.4, what is bool is one."""
        return self.mask or self.dtype == "bool"

    def declares(self, other: "TensorSpec") -> bool:
        """Whether a file's own declaration ``other`` is this one."""
        return (self.name, self.dtype, self.shape) == (other.name, other.dtype, other.shape)


class AxisRange(Record):
    """A symbolic axis: what was declared, what the exporter saw, what was verified."""

    name: str
    declared: tuple[int, int]
    captured: int
    verified: tuple[int, int] | None = None


class StateLink(Record):
    """A tensor that a run hands on to the next: the contract of a decoder's state.

    Feed ``initial`` (zeros of ``shape``) to ``input`` at the start of a sequence, and then what
    came out of ``output``. ``layout`` says what the axes are.
    """

    input: str
    output: str
    shape: list[int | str]
    dtype: str
    layout: str
    initial: Literal["zeros"] = "zeros"


class Note(Record):
    """Something to know of an artifact, by its code; the report repeats it as a finding."""

    code: Code
    message: str


class Artifact(StoredFile):
    """One exported file.

    ``entry`` is the graph: ``forward`` takes a whole sequence, ``prefill`` a piece of one from a
    state, ``step`` one token from a state. ``form`` is how an ONNX file holds a recurrence.
    """

    id: str
    model: str
    method: str
    config: dict[str, object]
    format: str
    variant: str
    entry: Literal["forward", "prefill", "step"] = "forward"
    form: str = "portable"
    states: list[StateLink] = []
    dtype: FloatName
    parameters: int
    weight_bytes: int
    nodes: int | None = None
    op_histogram: dict[str, int] | None = None
    opsets: dict[str, int] | None = None
    ir_version: int | None = None
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    labels: list[str] = []
    """What the elements of the output's last axis stand for, where they are classes."""
    axes: list[AxisRange]
    side_files: list[StoredFile] = []
    """Weights beside an ONNX file, which itself holds at most 2 GiB."""
    reference: RelativePath
    cost: Literal["linear", "quadratic", "unknown"] = "linear"
    """In the sequence length, by the method's definition; ``unknown`` promises nothing."""
    equivariant: bool = False
    """Whether reordering the tokens must reorder the outputs, and change nothing else."""
    causal: bool = False
    """Whether another token must change nothing before it."""
    block: int = 0
    """Tokens that are worked on at once, where that is a fixed number of them; 0 for all."""
    padding: Literal["any", "right", "left"] = "any"
    """Where padded tokens may lie; what they change elsewhere is not promised."""
    nan_padding: bool = True
    """Whether padded tokens may hold NaN; otherwise they may hold any finite number."""
    finite: bool = True
    """Whether finite inputs must give finite outputs, however hostile they are."""
    notes: list[Note] = []
    """What the export knows of it that no run of the file can show."""
    checks: list[RuntimeCheck] = []
    latency: list[LatencyEntry] = []
    verdict: str = "UNVERIFIED"

    @field_validator("axes")
    @classmethod
    def _both_axes(cls, axes: list[AxisRange]) -> list[AxisRange]:
        names = [axis.name for axis in axes]
        if sorted(names) != ["batch", "sequence"]:
            raise ValueError(f"must be batch and sequence, got {', '.join(names) or 'none'}")
        return axes

    @property
    def refuses_lengths(self) -> bool:
        """Whether it is fixed to one length of its inputs, and must refuse every other."""
        low, high = self.axis("sequence").declared
        return low == high and any("sequence" in spec.axes for spec in self.inputs)

    def axis(self, name: str) -> AxisRange:
        """The axis called ``name``."""
        return next(axis for axis in self.axes if axis.name == name)

    def accepts(self, batch: int, sequence: int) -> bool:
        """Whether an input of these sizes lies in the declared ranges."""
        return all(
            self.axis(name).declared[0] <= size <= self.axis(name).declared[1]
            for name, size in (("batch", batch), ("sequence", sequence))
        )

    def needs(self) -> set[str]:
        """Paths of the files without which it cannot be judged."""
        return {self.path, self.reference, *(file.path for file in self.side_files)}

    @property
    def subject(self) -> str:
        """Model, method and entry: artifacts that share it share their reference."""
        name = f"{self.model}/{self.method}"
        return name if self.entry == "forward" else f"{name}/{self.entry}"


class Tool(Record):
    """Who wrote the manifest."""

    name: Literal["linattn-export"]
    version: str


class Manifest(Record):
    """The whole contract of one folder."""

    schema_version: str = Field(pattern=r"^\d+\.\d+$")
    tool: Tool
    command: list[str] | None
    """The command that makes this folder; None where a call from Python made it."""
    seed: int
    environment: dict[str, str | int | None]
    artifacts: list[Artifact]
    references: list[StoredFile]
    test_data: list[StoredFile]
    not_made: dict[str, str] = {}
    """Place of each artifact that was left out because it cannot be made, to the reason."""
    verdict: str

    @model_validator(mode="after")
    def _references_are_listed(self) -> "Manifest":
        """A golden pack that is not among ``references`` has no hash to hold it to."""
        listed = {reference.path for reference in self.references}
        for artifact in self.artifacts:
            if artifact.reference not in listed:
                raise ValueError(
                    f"{artifact.id} has reference {artifact.reference!r}, which is not listed"
                )
        return self

    def files(self) -> list[StoredFile]:
        """Every file that the manifest vouches for."""
        beside = [file for artifact in self.artifacts for file in artifact.side_files]
        return [*self.artifacts, *beside, *self.references, *self.test_data]


def read(folder: Path) -> Manifest:
    """Read and validate the manifest of ``folder``.

    Raises:
        UsageError: the folder or manifest is missing, is not ours, is of a newer schema, or names
            paths outside its folder.
    """
    path = folder / FILE_NAME
    if not folder.is_dir():
        raise UsageError(
            f"no such folder: {folder}; give the output folder of 'linattn-export build'"
        )
    if not path.is_file():
        raise UsageError(
            f"{folder} holds no {FILE_NAME}; give the output folder of 'linattn-export build'"
        )
    import json

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON ({error}); build the folder again") from error
    tool = document.get("tool") if isinstance(document, dict) else None
    if not isinstance(tool, dict) or tool.get("name") != "linattn-export":
        raise UsageError(
            f"{path} was not written by linattn-export (its tool.name says "
            f"{tool.get('name') if isinstance(tool, dict) else None!r}); "
            "give the output folder of 'linattn-export build'"
        )
    version = str(document.get("schema_version"))
    ours = SCHEMA_VERSION.split(".")[0]
    if version.split(".")[0].isdigit() and int(version.split(".")[0]) > int(ours):
        raise UsageError(
            f"{path} has schema {version}, newer than this linattn reads ({ours}.x); "
            "upgrade with: pip install -U linattn"
        )
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its top"
        raise UsageError(
            f"{path} breaks the manifest schema at {where}: {first['msg']} "
            f"({error.error_count()} problem(s)); build the folder again"
        ) from error


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of ``folder``."""
    text = manifest.model_dump_json(indent=2) + "\n"
    (folder / FILE_NAME).write_text(text, encoding="utf-8")
