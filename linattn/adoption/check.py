"""Whether a stand-in may take the place of a layer: both run on the same inputs, here and now.

Where they differ, the original is asked whether it is right: what is in padding must not change a
real token, and a sequence must come out in a batch as it does alone. If it breaks one of these,
the stand-in is compared with the original on each sequence alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial, Unsupported
from linattn.adoption.rounding import (
    Error,
    K,
    copy_in,
    error_of,
    replaced,
    rounding_of,
    run,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``roundings``: the largest distance from the original, in its own roundings.

    ``difference``: the largest in float64, relative. ``reason``: why it may not be replaced, or
    empty. ``faults``: where the original itself is wrong and ours is not.
    """

    roundings: float
    difference: float
    reason: str = ""
    faults: tuple[str, ...] = ()


def check(peer: Peer, original: nn.Module, stand_in: nn.Module) -> Verdict:
    """Compare them on all trials of ``peer``, in float64 and in single precision."""
    own = own_dtype(original)
    theirs, ours = copy_in(original, torch.float64), copy_in(stand_in, torch.float64)
    narrow = copy_in(stand_in, own)
    roundings = difference = 0.0
    faults: dict[str, None] = {}
    for trial in peer.trials(original):
        expected = _answer(theirs, trial, "the original")
        rounding = rounding_of(theirs, trial, own)
        found = [
            (_answer(ours, trial, "ours"), expected),
            (run(narrow, trial, own), expected),
        ]
        errors = [error_of(mine, other, trial.channels) for mine, other in found]
        worst = max(error.roundings(rounding) for error in errors)
        if worst > K:
            fault = fault_of(theirs, trial, rounding)
            if fault is None:
                return Verdict(
                    roundings=worst,
                    difference=errors[0].row,
                    reason=_differs(trial, worst, errors[0]),
                )
            faults[fault.message] = None
            errors = [
                error_of([_real(x, trial) for x in mine[:1]], [fault.right]) for mine, _ in found
            ]
            worst = max(error.roundings(rounding) for error in errors)
            if worst > K:
                return Verdict(
                    roundings=worst,
                    difference=errors[0].row,
                    reason=f"{fault.message}; and {_differs(trial, worst, errors[0])} with each "
                    "sequence alone",
                )
        roundings = max(roundings, worst)
        difference = max(difference, errors[0].row)
    return Verdict(roundings=roundings, difference=difference, faults=tuple(faults))


def own_dtype(layer: nn.Module) -> torch.dtype:
    """The precision that a layer is judged in: float64 if it is, otherwise float32."""
    doubles = [p.dtype == torch.float64 for p in layer.parameters() if p.is_floating_point()]
    return torch.float64 if doubles and all(doubles) else torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with the original, and the right output: real tokens of all sequences."""

    message: str
    right: Tensor


def fault_of(original: nn.Module, trial: Trial, rounding: Error) -> Fault | None:
    """What ``original``, in float64, gets wrong on ``trial``, if anything."""
    output = run(original, trial, torch.float64)[:1]
    real = trial.real
    if real is not None:
        other = run(original, _other_padding(trial, real), torch.float64)[:1]
        moved = error_of(other, output, trial.channels, real)
        if moved.roundings(rounding) > K:
            return Fault(
                message=f"its mask leaks: other values in padding move real tokens by "
                f"{moved.row:.1e} of their size",
                right=_alone(original, trial, drop_padding=True),
            )
    if trial.batch > 1:
        right = _alone(original, trial, drop_padding=False)
        moved = error_of([_real(output[0], trial)], [right])
        if moved.roundings(rounding) > K:
            return Fault(
                message=f"its output depends on the batch: a sequence alone differs by "
                f"{moved.row:.1e}",
                right=right,
            )
    return None


def _answer(layer: nn.Module, trial: Trial, whose: str) -> list[Tensor]:
    try:
        return run(layer, trial, torch.float64)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise Unsupported(
            f"{whose} cannot be run on the CPU in float64 ({trial.name}): "
            f"{type(error).__name__}: {first}"
        ) from error


def _differs(trial: Trial, roundings: float, error: Error) -> str:
    return (
        f"the output differs by {roundings:.3g} roundings of the original, at most {K:g} allowed "
        f"({error.row:.1e} of a row in float64; {trial.name})"
    )


def _other_padding(trial: Trial, real: Tensor) -> Trial:
    hidden = trial.inputs[trial.hidden]
    generator = torch.Generator().manual_seed(1)
    noise = 3 * torch.randn(hidden.shape, dtype=hidden.dtype, generator=generator)
    changed = torch.where(real.unsqueeze(-1), hidden, noise)
    return replaced(trial, {**trial.inputs, trial.hidden: changed})


def _alone(original: nn.Module, trial: Trial, *, drop_padding: bool) -> Tensor:
    """Outputs of each sequence alone, their real tokens one after the other."""
    parts = []
    for index in range(trial.batch):
        inputs = dict(trial.inputs)
        for name in trial.batched:
            inputs[name] = inputs[name][index : index + 1]
        if drop_padding and trial.real is not None:
            kept = trial.real[index]
            inputs.pop(trial.mask)
            for name in trial.tokens:
                if name in inputs:
                    inputs[name] = inputs[name][:, kept]
        one = replaced(trial, inputs)
        parts.append(_real(run(original, one, torch.float64)[0], one))
    return torch.cat(parts)


def _real(output: Tensor, trial: Trial) -> Tensor:
    """Rows ``[.., C]`` of real tokens."""
    rows = output.movedim(trial.channels, -1)
    if trial.real is not None:
        return rows[trial.real]
    return rows.flatten(0, -2)
