"""What the record of a peer's layer says, and what a stand-in for it is tried on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from linattn.contract import LinattnError


class Unsupported(LinattnError, ValueError):
    """A layer that ours cannot stand in for; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One call of a layer, by the names of its arguments; floating point inputs are float64.

    ``batched`` and ``tokens`` name the tensors whose first axis is the batch and whose second is
    the sequence; ``mask`` is the padding mask among them (True = a real token), ``hidden`` what
    it masks. ``channels`` is the axis of the output that is one vector.
    """

    name: str
    inputs: Mapping[str, Any]
    batched: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    hidden: str = ""
    mask: str = ""
    channels: int = -1

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        size: int = self.inputs[self.batched[0]].shape[0]
        return size

    @property
    def real(self) -> Tensor | None:
        """Bool ``[B, N]``, or None without a mask."""
        found: Tensor | None = self.inputs[self.mask].bool() if self.mask else None
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A layer of a public package and how ours takes its place.

    ``layer`` is its module and class; ``method`` is what of ours computes it. ``versions`` are
    those of ``package`` (as it is installed) that the tests compare with. ``convert`` builds the
    stand-in, with the same arguments and outputs, or raises :class:`Unsupported`. ``trials`` are
    calls that both must answer alike; ``hint`` is what to do where the original does not run on
    the CPU.
    """

    package: str
    layer: str
    versions: str
    method: str
    convert: Callable[[Any], nn.Module]
    trials: Callable[[Any], Sequence[Trial]]
    hint: str = ""


def layer_name(module: nn.Module) -> str:
    """Module and class, as in :attr:`Peer.layer`."""
    kind = type(module)
    return f"{kind.__module__}.{kind.__qualname__}"


def require(option: str, value: object, *supported: object) -> None:
    """Refuse an option of the layer.

    Raises:
        Unsupported: ``value`` is none of ``supported``.
    """
    if not any(value is known or value == known for known in supported):
        known = " or ".join(repr(known) for known in supported)
        raise Unsupported(f"{option}={value!r} is not supported; supported: {known}")


def require_no_dropout(option: str, rate: float, module: nn.Module) -> None:
    """Refuse dropout within the attention, which ours does not have, where it acts.

    Raises:
        Unsupported: the module is in training mode and its rate is not 0.
    """
    if module.training and rate > 0:
        raise Unsupported(
            f"{option}={rate!r} acts on the attention in training mode, which ours does not have; "
            "supported: 0.0, or a model in eval mode"
        )
