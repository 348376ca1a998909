"""What every attention method promises, and the record that describes one.

Shape legend, used by all docstrings here:

    B batch   H heads   N key tokens   L query tokens (L = N in self-attention)
    D key width per head   E value width per head   M model width   R Linformer rank

Core modules take ``query [.., L, D]``, ``key [.., N, D]``, ``value [.., N, E]`` with leading
axes ``[B, H]``, ``[B]`` or none, and an optional boolean ``mask`` of shape ``[B, N]`` (``[N]``
when there is no batch axis); True marks a real token. They return ``[.., L, E]``. A sequence
with every token masked gives zeros.
"""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from torch import Tensor, nn

STATE_LAYOUT = "batch, head, key channel, value channel"
CONV_LAYOUT = "batch, channel, token before, the latest last"

SIZES = ("heads", "head_dim")
"""Fields of a config that are sizes of the layer, and no options of it."""

Oracle = Callable[[Tensor, Tensor, Tensor, Tensor | None, Any, Mapping[str, Tensor]], Tensor]

LayerOracle = Callable[[Tensor, Tensor | None, Any, int, Mapping[str, Tensor]], Tensor]


class LinattnError(Exception):
    """The root of what :mod:`linattn` and :mod:`linattn_models` raise under a name of their own.

    A shape or dtype that a module cannot take stays a plain ValueError or TypeError, as in torch.
    Builds and checks have a tree of their own, which works without torch: its root is
    :class:`linattn_runtime_checks.contract.errors.LinattnError`.
    """


class MethodError(LinattnError, ValueError):
    """A method name, or an option of a method, that does not exist or cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a method can do; tests and the command line read it instead of the name."""

    cost: Literal["linear", "quadratic"]
    """Growth of time and memory with the number of tokens."""
    cross_attention: bool = True
    """Queries may have another length than keys."""
    any_length: bool = True
    """False if the weights bound the number of keys; the config then has ``max_length``."""
    permutation_equivariant: bool = True
    """Permuting the tokens permutes the output and changes nothing else."""
    causal: bool = False
    """No token sees a later one."""
    divides_rows: bool = False
    """Each output row is divided by its own size, and with it what was lost to cancellation."""
    recurrent: bool = False
    """The layer has a state and goes on from it: entries ``prefill`` and ``step``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec:
    """One tensor that a recurrent layer carries from token to token; zeros at the start.

    ``shape`` is without the batch, which comes first; ``layout`` says what the axes are.
    """

    name: str
    shape: tuple[int, ...]
    layout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the records of all methods have.

    ``config`` is a frozen dataclass; a layer fills in those of its fields that are :data:`SIZES`.
    ``limits`` maps what is known not to work to the reason. ``shrunk(length)`` gives the options of
    the smallest layer that takes sequences up to ``length``, where the defaults are larger.
    """

    name: str
    title: str
    formula: str
    source: str
    when: str
    """When to choose it rather than another, in sentences; names and options in backticks."""
    config: type
    capabilities: Capabilities
    limits: Mapping[str, str] = field(default_factory=dict)
    shrunk: Callable[[int], dict[str, object]] | None = None

    def configure(self, options: Mapping[str, object]) -> Any:
        """Build the config from ``options``.

        Raises:
            MethodError: an option is unknown, of the wrong type or out of range.
        """
        fields = {f.name: f for f in dataclasses.fields(self.config)}
        for name, value in options.items():
            if name not in fields:
                raise MethodError(unknown(f"option of method {self.name!r}", name, fields))
            expected = fields[name].type
            if not _accepts(expected, value):
                raise MethodError(
                    f"{self.name}.{name} must be {_type_name(expected)}, got {value!r}"
                )
        return self.config(**options)

    def sized(self, options: Mapping[str, object], *, heads: int, head_dim: int) -> Any:
        """``configure`` for a layer: config fields ``heads`` and ``head_dim`` become its sizes.

        Args:
            options: as in :meth:`configure`.
            heads: number of heads H.
            head_dim: width D of each.

        Raises:
            MethodError: as in :meth:`configure`; or an option says another size.
        """
        config = self.configure(options)
        sizes = zip(SIZES, (heads, head_dim), strict=True)
        own = {name: size for name, size in sizes if hasattr(config, name)}
        for name, size in own.items():
            if options.get(name, size) != size:
                raise MethodError(
                    f"{self.name}.{name} must be {size}, as the layer has it, got "
                    f"{options[name]!r}; leave the option out"
                )
        return dataclasses.replace(config, **own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Record):
    """A method of query, key and value: each file in ``linattn.methods`` ends with one.

    ``module(config)`` builds the scriptable module, which keeps the config as ``config``, and
    ``oracle(query, key, value, mask, config, parameters)`` computes the same thing the slow and
    obvious way from the module's state dict; run it in float64.
    """

    module: Callable[[Any], nn.Module]
    oracle: Oracle


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMethod(Record):
    """A method that is a whole layer, with gates of its own: each file in ``linattn.layers``.

    ``layer(d_model, heads, config)`` builds the scriptable module, a
    :class:`linattn.layers.base.RecurrentLayer`; ``oracle(hidden_states, mask, config, heads,
    parameters)`` computes its output from the named parameters, token after token.
    """

    layer: Callable[[int, int, Any], nn.Module]
    oracle: LayerOracle


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to ``name``, if one is near at all."""
    match = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return match[0] if match else None


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name: what it was, what is known, what was probably meant."""
    names = list(known)
    near = closest(name, names)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"unknown {kind}: {name!r}; known: {', '.join(names) or 'none'}{hint}"


def _accepts(expected: object, value: object) -> bool:
    if expected is bool:
        return isinstance(value, bool)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if expected == float | None:
        return value is None or _accepts(float, value)
    if expected == int | None:
        return value is None or _accepts(int, value)
    if get_origin(expected) is Literal:
        return isinstance(value, str) and value in get_args(expected)
    raise TypeError(f"config fields of type {expected!r} are not supported")


def _type_name(expected: object) -> str:
    if get_origin(expected) is Literal:
        return " or ".join(map(repr, get_args(expected)))
    return expected.__name__ if isinstance(expected, type) else str(expected)
