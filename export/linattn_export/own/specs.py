"""The inputs of a module of one's own as the pipeline draws them, real ones included."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from linattn_export.inputs.domain import ends
from linattn_export.inputs.drawing import first_rows
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import Inputs, InputTable, key_of, name_of
from linattn_export.subjects.subject import TORCH_DTYPES
from linattn_models import Domain, InputSpec
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.contract.golden_pack import MAX_TOKENS_PER_CASE


def specs_of(inputs: Inputs, request: BuildRequest) -> tuple[InputSpec, ...]:
    """What the inputs of a SPEC are drawn from.

    Raises:
        UsageError: dtypes or real inputs do not fit.
    """
    return _as_one_batch(
        tuple(_spec(path, table, inputs, request) for path, table in inputs.tables.items()), inputs
    )


def _spec(
    path: tuple[str, ...], table: InputTable, inputs: Inputs, request: BuildRequest
) -> InputSpec:
    key, dtype = key_of(path), table.resolved
    wanted = str(TORCH_DTYPES[request.dtype]).removeprefix("torch.")
    if table.kind is None and dtype.startswith("float") and table.dtype not in (None, wanted):
        raise UsageError(
            f"{key}.dtype is {dtype}, but `dtype={request.dtype!r}` makes floating-point inputs "
            f"{wanted}; leave dtype out, or build with the other `dtype`"
        )
    floats = dtype.startswith("float")
    low, high = (0, 0) if table.range is None or floats else map(int, table.range)
    kind = "mask" if table.kind == "mask" else "normal" if floats else "tokens"
    return InputSpec(
        name=name_of(path),
        axes=tuple(table.shape),
        kind=kind,  # type: ignore[arg-type]
        vocabulary=high - low + 1,
        lowest=low,
        scale=table.scale,
        dtype=None if kind == "normal" else dtype,
        samples=None if table.samples is None else _samples(path, table, inputs),
        padding=table.padding or "any",
        empty_rows=table.empty_rows is not False,
        domain=_domain(key, table, TORCH_DTYPES[request.dtype]) if floats else None,
    )


def _domain(key: str, table: InputTable, dtype: torch.dtype) -> Domain | None:
    """What a floating-point input may hold."""
    if table.range is None:
        return Domain(positive=True) if table.positive else None
    low, high = map(float, table.range)
    found = Domain(low=low, high=high, positive=table.positive)
    first, last = ends(found, dtype)
    if first > last or (table.positive and last <= 0):
        kind = str(dtype).removeprefix("torch.")
        raise UsageError(
            f"{key}.range {list(table.range)} holds no number of {kind}; widen it, or make what "
            "never changes a buffer of the module"
        )
    return found


def _as_one_batch(specs: tuple[InputSpec, ...], inputs: Inputs) -> tuple[InputSpec, ...]:
    """The specs, of whose real inputs as many are kept as one batch takes."""
    real = [spec for spec in specs if spec.samples is not None]
    sizes: dict[str, tuple[int, str]] = {}
    for spec in real:
        assert spec.samples is not None
        for axis, size in zip(spec.axes, spec.samples.shape, strict=True):
            if isinstance(axis, str):
                known, name = sizes.setdefault(axis, (size, spec.name))
                if known != size:
                    raise UsageError(
                        f"inputs.{spec.name}.samples: {axis} is {size}, but {known} in those of "
                        f"{name}; real inputs of one row belong together"
                    )
    if "batch" not in sizes:
        return specs
    longest = sizes.get("sequence", (1, ""))[0]
    fits = max(MAX_TOKENS_PER_CASE // longest, inputs.ranges["batch"].low)
    rows = min(sizes["batch"][0], inputs.ranges["batch"].high, fits)
    return tuple(
        replace(spec, samples=first_rows(spec.samples, spec, rows).contiguous())
        if spec.samples is not None
        else spec
        for spec in specs
    )


def _samples(path: tuple[str, ...], table: InputTable, inputs: Inputs) -> Tensor:
    """The real inputs of one input; what does not fit is said with the key."""
    key = f"{key_of(path)}.samples"
    assert table.samples is not None
    file = inputs.folder / Path(table.samples)
    if not file.is_file():
        raise UsageError(f"{key}: no such file: {file}")
    try:
        tensors = load_file(file)
    except SafetensorError as error:
        raise UsageError(f"{key}: {file} is not a safetensors file ({error})") from error
    name = name_of(path)
    if name not in tensors:
        raise UsageError(
            f"{key}: {file} holds {', '.join(sorted(tensors)) or 'nothing'}; expected a tensor "
            f"called {name!r}"
        )
    tensor = tensors[name]
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_floating_point() != table.resolved.startswith("float") or (
        not tensor.is_floating_point() and kind != table.resolved
    ):
        raise UsageError(f"{key}: {name} is {kind}, expected {table.resolved}")
    if tensor.dim() != len(table.shape):
        raise UsageError(f"{key}: shape {list(tensor.shape)} does not fit {table.shape}")
    for axis, size in zip(table.shape, tensor.shape, strict=True):
        allowed = inputs.ranges[axis] if isinstance(axis, str) else None
        low, high = (axis, axis) if allowed is None else (allowed.low, allowed.high)
        if axis == "batch":
            high = max(size, int(high))  # there may be more of them than one batch takes
        if not int(low) <= size <= int(high):
            raise UsageError(
                f"{key}: shape {list(tensor.shape)} does not fit {table.shape}: {size} is "
                f"outside of {axis if allowed is None else allowed}"
            )
    lowest, highest = tensor.min().item(), tensor.max().item()
    if table.range is not None:
        # An end such as 0.1 is the number of the tensor's dtype that is closest to it.
        first, last = (torch.tensor(end).to(tensor.dtype).item() for end in table.range)
        if not (first <= lowest and highest <= last):
            raise UsageError(
                f"{key}: values go from {lowest} to {highest}, outside of range {list(table.range)}"
            )
    if table.positive and not lowest > 0:
        raise UsageError(
            f"{key}: values go from {lowest} to {highest}, but positive = true says that all are "
            "above 0; correct one of the two"
        )
    return tensor if not torch.is_floating_point(tensor) else tensor.double()
