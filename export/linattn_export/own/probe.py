"""The first runs of a module: does it take the SPEC's inputs, and what does it return?"""

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from linattn_export.inputs import draw
from linattn_export.own.call import Leaf, leaves_of, make_entry
from linattn_export.own.reasons import Place, caller, place_in_own_code
from linattn_export.own.spec import SYMBOLS, Inputs
from linattn_export.own.switches import under
from linattn_export.subject import LARGE
from linattn_export.variants import Range
from linattn_export.widened import Widened
from linattn_models import InputSpec
from linattn_runtime_checks.errors import ExportError, UsageError

# Of batch and sequence; the checks run others.
_TRIED = ((5, 11), (3, 14), (2, 19))

Axes = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a module returns, and whether its code fixes a dtype."""

    leaves: tuple[Leaf, ...]
    outputs: Mapping[str, Axes]
    fixes_dtype: bool


def probe(
    module: nn.Module,
    inputs: Inputs,
    specs: tuple[InputSpec, ...],
    dtype: torch.dtype,
    seed: int,
) -> Found:
    """Run ``module`` on a few sizes of the SPEC.

    Raises:
        UsageError: the SPEC does not fit the module, or an output cannot be judged.
        ExportError: two runs on the same input differ, or a run leaves something behind.
    """
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    sizes = _sizes(inputs.ranges)
    entry = make_entry(module, inputs, None, 0)
    drawn = [draw(specs, size, family="normal", dtype=dtype, seed=seed) for size in sizes]
    names = [spec.name for spec in specs]
    leaves = leaves_of(_run(entry, drawn[0], sizes[0], inputs), inputs.spec.outputs, names)
    flat = make_entry(module, inputs, leaves, 0)
    runs = [
        dict(zip([leaf.name for leaf in leaves], _tuple(_run(flat, x, size, inputs)), strict=True))
        for x, size in zip(drawn, sizes, strict=True)
    ]
    _require_stateless(module, before)
    _require_deterministic(flat, drawn[0], runs[0])
    for name, tensor in runs[0].items():
        if tensor.dtype != dtype:
            found, wanted = (str(d).removeprefix("torch.") for d in (tensor.dtype, dtype))
            raise UsageError(
                f"output {name!r} is {found}, the weights are {wanted}; return it as {wanted}"
            )
    outputs = {
        name: tuple(
            _axis(name, index, [run[name].shape[index] for run in runs], sizes, inputs)
            for index in range(tensor.dim())
        )
        for name, tensor in runs[0].items()
        if _same_rank(name, [run[name].dim() for run in runs])
    }
    return Found(leaves=tuple(leaves), outputs=outputs, fixes_dtype=_fixes_dtype(flat, drawn[0]))


def _sizes(ranges: Mapping[str, Range]) -> list[dict[str, int]]:
    tried = [
        {name: ranges[name].clamp(size) for name, size in zip(SYMBOLS, sizes, strict=True)}
        for sizes in _TRIED
    ]
    # A narrow or distant range clamps all to one size; its ends are different.
    for name in SYMBOLS:
        if len({size[name] for size in tried}) < 2:
            tried[0][name], tried[1][name] = (
                ranges[name].low,
                min(ranges[name].high, ranges[name].low + 1),
            )
    return tried


def _run(entry: nn.Module, inputs: dict[str, Tensor], sizes: dict[str, int], spec: Inputs) -> Any:
    try:
        with torch.no_grad():
            return entry(*inputs.values())
    except Exception as error:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in inputs.items())
        raise UsageError(
            f"the module does not take what the SPEC describes ({shapes}): "
            f"{type(error).__name__}: {_first_line(error)}{place_in_own_code(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"


def _tuple(outputs: Any) -> tuple[Tensor, ...]:
    return tuple(outputs) if isinstance(outputs, tuple) else (outputs,)


def _same_rank(name: str, ranks: Sequence[int]) -> bool:
    if len(set(ranks)) > 1:
        raise UsageError(f"output {name!r} has {sorted(set(ranks))} axes, depending on the sizes")
    return True


def _axis(
    name: str, index: int, found: list[int], sizes: list[dict[str, int]], inputs: Inputs
) -> str | int:
    for symbol in SYMBOLS:
        wanted = [size[symbol] for size in sizes]
        if inputs.has(symbol) and not inputs.ranges[symbol].fixed and found == wanted:
            return symbol
    if len(set(found)) == 1:
        return _fixed_symbol(index, found[0], inputs)
    seen = ", ".join(
        f"{size} for batch {of['batch']} and sequence {of['sequence']}"
        for size, of in zip(found, sizes, strict=True)
    )
    raise UsageError(
        f"axis {index} of output {name!r} is neither batch, nor sequence, nor one number ({seen}); "
        "only those can be promised: pad or reshape it inside the module, or leave the output out "
        "with outputs = [..]"
    )


def _fixed_symbol(index: int, size: int, inputs: Inputs) -> str | int:
    """A number; the name of a symbol that has one size, where that is what the axis holds."""
    if index == 0 and inputs.has("batch") and inputs.ranges["batch"] == Range(low=size, high=size):
        return "batch"
    sequence = inputs.ranges["sequence"]
    if index > 0 and inputs.has("sequence") and sequence == Range(low=size, high=size):
        return "sequence"
    return size


def _require_stateless(module: nn.Module, before: dict[str, Tensor]) -> None:
    for name, buffer in module.named_buffers():
        if name not in before or not torch.equal(buffer, before[name]):
            raise ExportError(
                f"running the module writes to its buffer {name}, so a result depends on what ran "
                "before; a file keeps nothing between runs: take it as an input and return it"
            )


def _require_deterministic(
    entry: nn.Module, inputs: dict[str, Tensor], before: dict[str, Tensor]
) -> None:
    watch = _RandomPlaces()
    with torch.no_grad():
        again = under(watch, lambda: _tuple(entry(*inputs.values())))
        if again is None:
            again = _tuple(entry(*inputs.values()))
    for (name, one), other in zip(before.items(), again, strict=True):
        if one.shape != other.shape or one.numpy().tobytes() != other.numpy().tobytes():
            where = f" (random numbers at {watch.place})" if watch.place is not None else ""
            raise ExportError(
                f"output {name!r} differs between two runs on the same input in eval mode{where}; "
                "a file is judged by its numbers: draw them once, into a buffer, or pass them as "
                "an input; dropout needs training=self.training"
            )


class _RandomPlaces(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first line of own code that draws random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.place: Place | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.place is None and torch.Tag.nondeterministic_seeded in func.tags:
            self.place = caller()
        return func(*args, **(kwargs or {}))


def _fixes_dtype(entry: nn.Module, inputs: dict[str, Tensor]) -> bool:
    """Whether the module, made float64, does not compute in float64."""
    if sum(x.numel() * x.element_size() for x in entry.state_dict().values()) > LARGE:
        return False  # it is not copied, and given float64 either way
    wide = copy.deepcopy(entry).double()
    doubles = [x.double() if x.is_floating_point() else x for x in inputs.values()]
    try:
        with torch.no_grad():
            plain = _tuple(wide(*doubles))
    except Exception:  # dtypes that do not go together; Widened says whether that was all
        return True
    with torch.no_grad():
        truth = under(contextlib.nullcontext(), lambda: _tuple(Widened(wide)(*doubles)))
    return truth is not None and any(
        one.dtype != torch.float64 or not torch.equal(one.nan_to_num(), other.nan_to_num())
        for one, other in zip(plain, truth, strict=True)
    )
