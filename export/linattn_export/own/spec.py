"""SPEC: which inputs a module of one's own takes, over which sizes, as TOML or JSON.

    [symbols]
    batch = "1:8"
    sequence = "1:4096"
    [inputs.tokens]
    dtype = "int64"
    shape = ["batch", "sequence"]
    range = [0, 255]
    [inputs.attention_mask]
    kind = "mask"
    shape = ["batch", "sequence"]
    [promises]
    cost = "linear"

A table below ``inputs`` that has no ``shape`` is an argument that is a dict or a dataclass: its
tables are the fields. Where their keys are 0, 1, 2, .. it is a list or a tuple, such as
``[inputs.levels.0]``, and the inputs are called ``levels_0`` and so on.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from linattn.contract import closest
from linattn_export.variants import Range, parse_range
from linattn_runtime_checks.errors import UsageError

SCHEMA_VERSION = "1.0"
SYMBOLS = ("batch", "sequence")
_FLOATS = ("float32", "float16")
_INTEGERS = ("int64", "int32")

Dtype = Literal["float32", "float16", "int64", "int32", "bool"]


class _Strict(BaseModel):
    """Unknown keys are errors: most are misspelt."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class InputTable(_Strict):
    """One input tensor.

    Floating-point inputs are drawn from N(0, 1) times ``scale``, and from the hostile families;
    integers evenly from ``range``, both ends included; a ``mask`` has True, or 1, at the real
    tokens.
    """

    shape: list[str | int] = Field(description="symbols and numbers, one for each axis")
    dtype: Dtype | None = Field(default=None, description="float32; bool for a mask")
    range: tuple[int, int] | None = Field(default=None, description="of integers, both included")
    family: Literal["normal"] | None = Field(default=None, description="of floating-point inputs")
    scale: float = Field(default=1.0, gt=0, description="of floating-point inputs")
    kind: Literal["mask"] | None = Field(default=None, description="a key padding mask")
    samples: str | None = Field(
        default=None,
        description="a safetensors file with real inputs, in a tensor of the input's name",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "InputTable":
        dtype = self.resolved
        if self.kind == "mask":
            if self.shape != list(SYMBOLS):
                raise ValueError(f"a mask has shape {list(SYMBOLS)}, got {self.shape}")
            if self.range is not None or self.family is not None or self.samples is not None:
                raise ValueError("a mask takes no range, family or samples; leave them out")
        elif dtype == "bool":
            raise ValueError('bool inputs are masks: add kind = "mask", or pass 0 and 1 as int64')
        elif dtype in _INTEGERS and self.range is None:
            raise ValueError(f"{dtype} needs range, such as [0, 255]")
        elif dtype in _FLOATS and self.range is not None:
            raise ValueError('range is of integers; a floating-point input has family = "normal"')
        if dtype in _INTEGERS and (self.family is not None or self.scale != 1.0):
            raise ValueError("family and scale are of floating-point inputs; leave them out")
        if self.range is not None and self.range[0] > self.range[1]:
            raise ValueError(f"range is reversed: {list(self.range)}")
        for axis in self.shape:
            if isinstance(axis, int) and axis < 1:
                raise ValueError(f"an axis has at least one element, got {axis}")
        return self

    @property
    def resolved(self) -> Dtype:
        """The dtype, with its default."""
        return self.dtype or ("bool" if self.kind == "mask" else "float32")


_INPUTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            InputTable.model_json_schema(),
            {"type": "object", "not": {"required": ["shape"]}},
        ]
    },
}


class Promises(_Strict):
    """What the module promises beyond its numbers; what is promised here is checked."""

    cost: Literal["linear", "quadratic"] | None = Field(
        default=None, description="growth of time and memory with the sequence length"
    )
    causal: bool = Field(default=False, description="no token sees a later one")
    permutation_equivariant: bool = Field(
        default=False, description="reordering the tokens reorders the outputs, nothing else"
    )


class InputsSpec(_Strict):
    """A whole SPEC."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, title=f"linattn inputs SPEC {SCHEMA_VERSION}"
    )

    symbols: dict[str, str | int] = Field(
        default_factory=dict, description='axes that vary: "MIN:MAX", or one number'
    )
    inputs: Annotated[dict[str, Any], WithJsonSchema(_INPUTS_SCHEMA)] = Field(
        description="a table for each input; a table without shape is a dict or dataclass of them"
    )
    outputs: list[str] | None = Field(
        default=None, description="outputs to keep, by name, in this order; all by default"
    )
    promises: Promises = Promises()


class Inputs:
    """A SPEC that holds together.

    Attributes:
        spec: as written.
        tables: path of each input below ``inputs`` to its table, in order.
        ranges: of both symbols; one size where there is no such symbol.
        folder: of the file, for ``samples``.
    """

    def __init__(self, spec: InputsSpec, folder: Path, where: str) -> None:
        self.spec = spec
        self.folder = folder
        self.tables = dict(_tables(spec.inputs, (), where))
        self.ranges = {name: Range(low=1, high=1) for name in SYMBOLS}
        for name, text in spec.symbols.items():
            key = f"{where}: symbols.{name}"
            if name not in SYMBOLS:
                raise UsageError(
                    f"{key}: the sizes that vary are called batch and sequence; give other axes "
                    "as numbers" + _near(name, SYMBOLS)
                )
            self.ranges[name] = parse_range(key, str(text), fixed=True)
        used = {axis for table in self.tables.values() for axis in table.shape}
        for axis in used:
            if isinstance(axis, str) and axis not in spec.symbols:
                path = next(p for p, table in self.tables.items() if axis in table.shape)
                raise UsageError(
                    f"{where}: {key_of(path)}.shape names {axis!r}, which is not in [symbols]"
                    + _near(axis, spec.symbols)
                    + f'; add {axis} = "1:8", or give a number'
                )
        for name in spec.symbols:
            if name not in used:
                raise UsageError(f"{where}: symbols.{name} is the size of no input; leave it out")
        names = [name_of(path) for path in self.tables]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"{where}: two inputs are called {name!r}; rename one of them")
        if sum(table.kind == "mask" for table in self.tables.values()) > 1:
            raise UsageError(f"{where}: there are two masks; the checks know one, so give one")

    def has(self, symbol: str) -> bool:
        """Whether an axis of that name varies or is fixed in ``symbols``."""
        return symbol in self.spec.symbols


def is_list(branch: Mapping[str, Any]) -> bool:
    """Whether the keys are 0, 1, 2, ..: a list of inputs."""
    return set(branch) == {str(index) for index in range(len(branch))}


def name_of(path: tuple[str, ...]) -> str:
    """What the input is called: its key, and within a list also that of the list."""
    digits = [index for index, key in enumerate(path) if key.isdigit()]
    return "_".join(path[max(digits[0] - 1, 0) :]) if digits else path[-1]


def key_of(path: tuple[str, ...]) -> str:
    """As the file spells it."""
    return ".".join(("inputs", *path))


def read_spec(source: Path | str | Mapping[str, Any]) -> Inputs:
    """Read a SPEC from a TOML or JSON file, or from the same as a dictionary.

    Raises:
        UsageError: it is missing, is neither TOML nor JSON, or breaks the schema; the message
            names the key.
    """
    if isinstance(source, Mapping):
        return _checked(dict(source), Path(), "the inputs")
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"no such file: {path}; --inputs takes a SPEC in TOML or JSON")
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise UsageError(f"{path} is not {kind}: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} holds no table; it needs [symbols] and [inputs.NAME]")
    return _checked(document, path.parent, str(path))


def _checked(document: dict[str, Any], folder: Path, where: str) -> Inputs:
    try:
        spec = InputsSpec.model_validate(document)
    except ValidationError as error:
        raise UsageError(_first_problem(error, InputsSpec, (), where)) from error
    if not spec.inputs:
        raise UsageError(f"{where}: inputs is empty; describe every input in [inputs.NAME]")
    return Inputs(spec, folder, where)


def _tables(
    tree: Mapping[str, Any], path: tuple[str, ...], where: str
) -> Iterator[tuple[tuple[str, ...], InputTable]]:
    for name, branch in tree.items():
        here = (*path, name)
        if not isinstance(branch, Mapping) or not branch:
            raise UsageError(f"{where}: {key_of(here)} must be a table with a shape, got {branch}")
        if "shape" not in branch and all(isinstance(v, Mapping) for v in branch.values()):
            if all(key.isdigit() for key in branch) and not is_list(branch):
                raise UsageError(
                    f"{where}: {key_of(here)} has the keys {', '.join(branch)}; a list has "
                    f"{', '.join(map(str, range(len(branch))))}: number its elements from 0, "
                    "without gaps"
                )
            yield from _tables(branch, here, where)
            continue
        try:
            yield here, InputTable.model_validate(branch)
        except ValidationError as error:
            raise UsageError(_first_problem(error, InputTable, here, where)) from error


def _first_problem(
    error: ValidationError, model: type[BaseModel], path: tuple[str, ...], where: str
) -> str:
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"] if part not in ("str", "int")]
    key = ".".join(([key_of(path)] if path else []) + parts) or "its top"
    if first["type"] == "extra_forbidden":
        known = list(model.model_fields)
        if len(parts) > 1:
            known = list(Promises.model_fields)
        near = _near(parts[-1], known)
        return f"{where}: unknown key {key}; known here: {', '.join(known)}{near}"
    if first["type"] == "missing":
        return f"{where}: {key} is missing"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{where}: {key}: {reason}"


def _near(name: str, known: Any) -> str:
    near = closest(name, list(known))
    return f"; did you mean {near!r}?" if near else ""
