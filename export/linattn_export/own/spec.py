"""SPEC: which inputs a module of one's own takes, over which sizes, as TOML or JSON.

    [symbols]
    batch = "1:8"
    sequence = "1:4096"
    [inputs.tokens]
    dtype = "int64"
    shape = ["batch", "sequence"]
    range = [0, 255]
    [inputs.power]
    shape = ["batch", "sequence", 80]
    positive = true
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
import math
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

from linattn_export.options.variants import Range, parse_range
from linattn_export.own.promises import Promises, Strict
from linattn_export.own.symbols import SYMBOLS, near, other_axis, renamed
from linattn_runtime_checks.contract.errors import UsageError

SCHEMA_VERSION = "1.0"
_FLOATS = ("float32", "float16")
_INTEGERS = ("int64", "int32")

Dtype = Literal["float32", "float16", "int64", "int32", "bool"]


class InputTable(Strict):
    """One input tensor.

    Floating-point inputs are drawn from N(0, 1) times ``scale``, and from the hostile families;
    those with a ``range`` evenly from it, and no family leaves it; ``positive`` ones hold no 0 and
    nothing below. Integers are drawn evenly from ``range``, both ends included; a ``mask`` has
    True, or 1, at the real tokens.
    """

    shape: list[str | int] = Field(description="symbols and numbers, one for each axis")
    dtype: Dtype | None = Field(default=None, description="float32; bool for a mask")
    range: tuple[int, int] | tuple[float, float] | None = Field(
        default=None, description="lowest and highest number, both included"
    )
    positive: bool = Field(default=False, description="floating-point numbers above 0 only")
    family: Literal["normal"] | None = Field(default=None, description="of floating-point inputs")
    scale: float = Field(default=1.0, gt=0, description="of floating-point inputs")
    kind: Literal["mask"] | None = Field(default=None, description="a key padding mask")
    samples: str | None = Field(
        default=None,
        description="a safetensors file with real inputs, in a tensor of the input's name",
    )
    padding: Literal["any", "right", "left"] | None = Field(
        default=None, description="where a mask may have padded tokens; any by default"
    )
    empty_rows: bool | None = Field(
        default=None, description="whether a mask may leave a sequence without a real token; true"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "InputTable":
        dtype = self.resolved
        if self.kind == "mask":
            if self.shape != list(SYMBOLS):
                raise ValueError(f"a mask has shape {list(SYMBOLS)}, got {self.shape}")
            others = (self.range, self.family, self.samples, self.positive or None)
            if any(other is not None for other in others):
                raise ValueError("a mask takes no range, positive, family or samples; leave it out")
        elif self.padding is not None or self.empty_rows is not None:
            raise ValueError('padding and empty_rows are of masks: add kind = "mask"')
        elif dtype == "bool":
            raise ValueError('bool inputs are masks: add kind = "mask", or pass 0 and 1 as int64')
        elif dtype in _INTEGERS and self.range is None:
            raise ValueError(f"{dtype} needs range, such as [0, 255]")
        if dtype in _INTEGERS:
            self._integers()
        if self.range is not None:
            self._ranged()
        for axis in self.shape:
            if isinstance(axis, int) and axis < 1:
                raise ValueError(f"an axis has at least one element, got {axis}")
        return self

    def _integers(self) -> None:
        if self.family is not None or self.scale != 1.0:
            raise ValueError("family and scale are of floating-point inputs; leave them out")
        if self.positive:
            raise ValueError("positive is of floating-point inputs; start range at 1 instead")
        if self.range is not None and not all(isinstance(end, int) for end in self.range):
            raise ValueError(f"range of {self.resolved} is whole numbers, got {list(self.range)}")

    def _ranged(self) -> None:
        assert self.range is not None
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(
                f"range has two finite ends, got {list(self.range)}; for all numbers above 0 write "
                "positive = true"
            )
        if low > high:
            raise ValueError(f"range is reversed: {list(self.range)}")
        if self.scale != 1.0 or self.family is not None:
            raise ValueError(
                "numbers of a range are drawn evenly from it; leave out family and scale"
            )
        if self.positive and high <= 0:
            raise ValueError(f"range {list(self.range)} holds no positive number")

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


class InputsSpec(Strict):
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
                    f"{key}: two sizes can vary, and they are called batch and sequence"
                    + (renamed(name, spec.symbols))
                )
            self.ranges[name] = parse_range(key, str(text), fixed=True)
        used = {axis for table in self.tables.values() for axis in table.shape}
        for axis in used:
            if isinstance(axis, str) and axis not in spec.symbols:
                path = next(p for p, table in self.tables.items() if axis in table.shape)
                raise UsageError(
                    f"{where}: {key_of(path)}.shape names {axis!r}, which is not in [symbols]"
                    + (other_axis(axis, spec.symbols))
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
        raise UsageError(f"no such file: {path}; `inputs` takes a SPEC in TOML or JSON")
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
        hint = near(parts[-1], known)
        return f"{where}: unknown key {key}; known here: {', '.join(known)}{hint}"
    if first["type"] == "missing":
        return f"{where}: {key} is missing"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{where}: {key}: {reason}"
