"""Whether a stand-in may take the place of a layer: both run on the same inputs, here and now.

Where they differ, the original is asked whether it is right: what is in padding must not change a
real token, and a sequence must come out in a batch as it does alone. If it breaks one of these,
the stand-in is compared with the original on each sequence alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from linattn.adoption.contract import Peer, Trial, Unsupported
from linattn.adoption.rounding import (
    Yardstick,
    copy_in,
    error_of,
    replaced,
    run,
)
from linattn_runtime_checks.contract.verdict import INCONCLUSIVE_YARDSTICK, Error, K

PLAIN = 1.5
"""Up to this multiple of the original's own error, what small changes do to it is not asked."""
LEAK = "its mask leaks: other values in padding move real tokens by up to {:.1e} of their size"
BATCH = "its output depends on the batch: a sequence alone differs by up to {:.1e}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with the original, by how much, and the right rows of all real tokens."""

    message: str
    moved: float
    right: Tensor


def check(peer: Peer, original: nn.Module, stand_in: nn.Module) -> Verdict:
    """Compare them on all trials of ``peer``, in float64 and in single precision.

    Raises:
        Unsupported: one of them does not run, or rounding alone decides on every trial.
    """
    own = own_dtype(original)
    yardstick = Yardstick(original, own)
    ours, narrow = copy_in(stand_in, torch.float64), copy_in(stand_in, own)
    roundings = difference = 0.0
    faults: dict[str, float] = {}
    conclusive = False
    for trial in peer.trials(original):
        expected = _answer(yardstick.exact, trial, "the original", peer.hint)
        found = [_answer(ours, trial, "ours"), run(narrow, trial, own)]
        errors = [error_of(mine, expected, trial.channels) for mine in found]
        rounding = yardstick.own_error(trial, expected)
        if _worst(errors, rounding) > PLAIN:
            rounding = yardstick.rounding(trial, expected, rounding)
        if max(rounding.row, rounding.whole) <= INCONCLUSIVE_YARDSTICK:
            conclusive = True
        else:
            found, errors = found[:1], errors[:1]
        reason = ""
        if _worst(errors, rounding) > K:
            fault = fault_of(yardstick.exact, trial, rounding)
            if fault is not None:
                faults[fault.message] = max(fault.moved, faults.get(fault.message, 0.0))
                rows = [[_real(mine[0], trial)] for mine in found]
                errors = [error_of(mine, [fault.right]) for mine in rows]
                reason = f"{fault.message.format(fault.moved)}; with each sequence alone, "
        worst = _worst(errors, rounding)
        if worst > K:
            reason += (
                f"the output differs by {worst:.3g} roundings of the original, at most {K:g} "
                f"allowed ({errors[0].row:.1e} of a row in float64; {trial.name})"
            )
            return Verdict(roundings=worst, difference=errors[0].row, reason=reason)
        roundings = max(roundings, worst)
        difference = max(difference, errors[0].row)
    if not conclusive:
        raise Unsupported(
            "rounding alone moves the output of the original by more than "
            f"{INCONCLUSIVE_YARDSTICK:.0%} on every input that was tried; nothing can be compared"
        )
    told = tuple(message.format(moved) for message, moved in faults.items())
    return Verdict(roundings=roundings, difference=difference, faults=told)


def own_dtype(layer: nn.Module) -> torch.dtype:
    """The precision that a layer is judged in: float64 if it is, otherwise float32."""
    doubles = [p.dtype == torch.float64 for p in layer.parameters() if p.is_floating_point()]
    return torch.float64 if doubles and all(doubles) else torch.float32


def fault_of(original: nn.Module, trial: Trial, rounding: Error) -> Fault | None:
    """What ``original``, in float64, gets wrong on ``trial``, if anything."""
    output = run(original, trial, torch.float64)[:1]
    real = trial.real
    if real is not None:
        other = run(original, _other_padding(trial, real), torch.float64)[:1]
        moved = error_of(other, output, trial.channels, real)
        if moved.multiple_of(rounding) > K:
            right = _alone(original, trial, drop_padding=True)
            return Fault(message=LEAK, moved=moved.row, right=right)
    if trial.batch > 1:
        right = _alone(original, trial, drop_padding=False)
        moved = error_of([_real(output[0], trial)], [right])
        if moved.multiple_of(rounding) > K:
            return Fault(message=BATCH, moved=moved.row, right=right)
    return None


def _worst(errors: Sequence[Error], rounding: Error) -> float:
    """In roundings; the first error is in float64 and never excused by a rounding of 5 %."""
    least = Error(
        row=min(rounding.row, INCONCLUSIVE_YARDSTICK),
        whole=min(rounding.whole, INCONCLUSIVE_YARDSTICK),
    )
    return max(errors[0].multiple_of(least), *(error.multiple_of(rounding) for error in errors))


def _answer(layer: nn.Module, trial: Trial, whose: str, hint: str = "") -> list[Tensor]:
    try:
        return run(layer, trial, torch.float64)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise Unsupported(
            f"{whose} cannot be run on the CPU in float64 ({trial.name}): "
            f"{type(error).__name__}: {first}{'; ' if hint else ''}{hint}"
        ) from error


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
            inputs[trial.mask] = None
            for name in trial.tokens:
                if inputs[name] is not None:
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
