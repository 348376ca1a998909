"""The first runs of a module: does it take the SPEC's inputs, and what does it return?"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from linattn_export.inputs.drawing import draw
from linattn_export.live_module.copies import as_double, copy_of
from linattn_export.live_module.kept import Kept, line_that_changes, same
from linattn_export.live_module.kinds import advice_for, random_part
from linattn_export.live_module.reasons import Place, is_own, place_in_own_code
from linattn_export.live_module.switches import under
from linattn_export.live_module.watches import Watch, writes_of
from linattn_export.options.variants import Range
from linattn_export.own.call import Leaf, leaves_of, make_entry
from linattn_export.own.spec import Inputs
from linattn_export.own.symbols import SYMBOLS
from linattn_export.subjects.subject import LARGE
from linattn_export.subjects.widened import Widened, weights_of
from linattn_models import InputSpec
from linattn_runtime_checks.contract.errors import ExportError, UsageError, foreign

# Of batch and sequence; the checks run others.
_TRIED = ((5, 11), (3, 14), (2, 19))

Axes = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a module returns, what it writes into, and how its reference can be made."""

    leaves: tuple[Leaf, ...]
    outputs: Mapping[str, Axes]
    written: Mapping[str, Place | None]
    """Inputs that the module writes into, and the line that does it."""
    fixes_dtype: bool
    """Its code spells out a dtype."""
    copied: bool
    """It can be copied."""


def probe(
    module: nn.Module,
    inputs: Inputs,
    specs: tuple[InputSpec, ...],
    dtype: torch.dtype,
    seed: int,
) -> Found:
    """Run ``module`` on a few sizes of the SPEC, each time from what it kept at first.

    Raises:
        UsageError: the SPEC does not fit the module, or an output cannot be judged.
        ExportError: two runs on the same input differ, or depend on what a run leaves behind.
    """
    kept = Kept(module)
    sizes = sizes_of(inputs.ranges)
    drawn = [draw(specs, size, family="normal", dtype=dtype, seed=seed) for size in sizes]
    names = [spec.name for spec in specs]
    entry = make_entry(module, inputs, None, 0)
    leaves = leaves_of(run_entry(entry, drawn[0]), inputs.spec.outputs, names)
    kept.restore()
    written = _writes(module, make_entry(module, inputs, leaves, 0), drawn, kept)
    flat = make_entry(module, inputs, leaves, 0, written)
    runs = []
    for x in drawn:
        found = dict(zip([e.name for e in leaves], _tuple(run_entry(flat, x)), strict=True))
        runs.append({name: tensor.clone() for name, tensor in found.items()})
        kept.restore()
    _require_deterministic(flat, drawn[0], runs[0], module)
    kept.restore()
    _require_stateless(flat, drawn, runs[0], kept)
    for name, tensor in runs[0].items():
        if tensor.dtype != dtype:
            seen, wanted = (str(d).removeprefix("torch.") for d in (tensor.dtype, dtype))
            raise UsageError(
                f"output {name!r} is {seen}, the weights are {wanted}; return it as {wanted}"
            )
    outputs = {
        name: tuple(
            _axis(name, index, [run[name].shape[index] for run in runs], sizes, inputs)
            for index in range(tensor.dim())
        )
        for name, tensor in runs[0].items()
        if _same_rank(name, [run[name].dim() for run in runs])
    }
    large = sum(x.numel() * x.element_size() for x in weights_of(module)) > LARGE
    wide = None if large else copy_of(flat)
    fixes = wide is not None and _fixes_dtype(as_double(wide), drawn[0])
    kept.restore()
    return Found(
        leaves=tuple(leaves),
        outputs=outputs,
        written=written,
        fixes_dtype=fixes,
        copied=large or wide is not None,
    )


def sizes_of(ranges: Mapping[str, Range]) -> list[dict[str, int]]:
    """What a module is first run on."""
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


def run_entry(entry: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
    """What ``entry`` returns for copies of ``inputs``.

    Raises:
        UsageError: it fails.
    """
    return _call(entry, {name: x.clone() for name, x in inputs.items()})


def _call(entry: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
    try:
        with torch.no_grad():
            return entry(*inputs.values())
    except Exception as error:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in inputs.items())
        raise UsageError(
            f"the module does not take what the SPEC describes ({shapes}): "
            f"{type(error).__name__}: {_first_line(error)}{place_in_own_code(error)}"
            f"{_about_values(error, inputs)}"
            f"{advice_for(entry)}"
        ) from error


def _about_values(error: Exception, inputs: Mapping[str, Tensor]) -> str:
    """Floating-point numbers that look something up are of a range, which must be declared."""
    floats = [name for name, x in inputs.items() if x.is_floating_point()]
    if not isinstance(error, IndexError) or not floats:
        return ""
    name = f"inputs.{floats[0]}"
    return f"; if numbers of {name} are places in a table, declare range = [lowest, highest]"


def _first_line(error: Exception) -> str:
    lines = foreign(str(error)).strip().splitlines()
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


def _writes(
    module: nn.Module, entry: nn.Module, drawn: Sequence[dict[str, Tensor]], kept: Kept
) -> dict[str, Place | None]:
    """Inputs that the module writes into, and where; a buffer that it writes into is refused."""
    found: dict[str, Place | None] = {}
    buffers = {f"its buffer {name}": x for name, x in module.named_buffers()}
    for inputs in drawn:
        written = writes_of(lambda given: _call(entry, given), inputs, buffers)
        for name in written.keys() & inputs.keys():
            found[name] = found.get(name) or written[name]
        changed = {f"its buffer {name}" for name in kept.changed()}
        now = {f"its buffer {name}" for name, _ in module.named_buffers()}
        for name in sorted(changed & (now | set(buffers))):
            place = written.get(name) or _line(kept, entry, inputs)
            where = f" at {place}" if place is not None else ""
            raise ExportError(
                f"running the module writes to {name}{where}, so a result depends on what ran "
                "before; a file keeps nothing between runs: take it as an input and return it"
            )
        kept.restore()
    return found


def _require_deterministic(
    entry: nn.Module, inputs: dict[str, Tensor], before: dict[str, Tensor], module: nn.Module
) -> None:
    watch = Watch({})

    def run() -> tuple[Tensor, ...]:
        return _tuple(entry(*(x.clone() for x in inputs.values())))

    with torch.no_grad():
        again = under(watch, run)
        if again is None:
            again = run()
    name = _first_difference(before, again)
    if name is not None:
        place = watch.random if isinstance(watch.random, Place) else random_part(module)
        source = place or watch.random
        where = f" (random numbers at {source})" if source is not None else ""
        raise ExportError(
            f"output {name!r} differs between two runs on the same input in eval mode{where}; "
            "a file is judged by its numbers: draw them once, into a buffer, or pass them as "
            f"an input; dropout needs training=self.training{advice_for(module)}"
        )


def _first_difference(before: Mapping[str, Tensor], again: Sequence[Tensor]) -> str | None:
    pairs = zip(before.items(), again, strict=True)
    return next((name for (name, one), other in pairs if not same(one, other)), None)


def _require_stateless(
    entry: nn.Module,
    drawn: Sequence[dict[str, Tensor]],
    before: dict[str, Tensor],
    kept: Kept,
) -> None:
    """Refuse what an earlier run changes the outputs of; what is only collected does no harm."""
    try:
        for inputs in (drawn[0], drawn[1], drawn[0]):
            again = run_entry(entry, inputs)
        differs = _first_difference(before, _tuple(again)) is not None
    except UsageError:
        differs = True  # these inputs were taken by the module as it was
    names = ", ".join(kept.changed()[:3])
    if differs:
        place = _line(kept, entry, drawn[0])
        where = f" (changed at {place})" if place is not None else ""
        what = f"in {names}{where}" if names else "somewhere outside of its attributes"
        raise ExportError(
            f"the module keeps state {what}, and what it returns depends on the runs before; a "
            "file keeps nothing between runs: take it as an input and return it as an output"
        )
    kept.restore()


def _line(kept: Kept, entry: nn.Module, inputs: dict[str, Tensor]) -> Place | None:
    found = line_that_changes(kept, lambda: run_entry(entry, inputs), is_own)
    return None if found is None else Place(*found)


def _fixes_dtype(wide: nn.Module, inputs: dict[str, Tensor]) -> bool:
    """Whether the module, made float64, does not compute in float64."""
    doubles = [x.double() if x.is_floating_point() else x for x in inputs.values()]
    try:
        with torch.no_grad():
            plain = _tuple(wide(*(x.clone() for x in doubles)))
    except Exception:  # dtypes that do not go together; Widened says whether that was all
        return True
    with torch.no_grad():
        truth = under(contextlib.nullcontext(), lambda: _tuple(Widened(wide)(*doubles)))
    return truth is not None and any(
        one.dtype != torch.float64 or not torch.equal(one.nan_to_num(), other.nan_to_num())
        for one, other in zip(plain, truth, strict=True)
    )
