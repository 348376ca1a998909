"""Finds layers of public packages in a model and puts ours in their places."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata

from torch import nn
from torch.nn.utils import parametrize

from linattn.adoption.check import check
from linattn.adoption.contract import Peer, Unsupported, layer_name
from linattn.adoption.peers import PEERS
from linattn.adoption.report import Adopted, AdoptReport, Kept
from linattn.torch_internals import children_of, hooks_of


def adopt(
    model: nn.Module, *, strict: bool = True, peers: Mapping[str, Peer] = PEERS
) -> AdoptReport:
    """Replace attention layers of public packages in ``model`` by ours, with the same weights.

    A layer is replaced only if ours gave the same output, up to four of the original's own
    roundings, on inputs that both ran on here. All others stay as they are, and the report says
    why. The model is changed in place; the rest of it, its training mode, dtype and device stay.
    A layer that several places share is replaced once and stays shared.

    Args:
        model: with layers of the packages in :data:`linattn.adoption.PEERS`, or one itself; then
            ``report.model`` is what takes its place.
        strict: keep a layer whose own output is wrong (a mask that leaks, a batch that changes its
            sequences), because ours then differs from it. False replaces it too, if ours is what
            the original gives for each sequence alone.
        peers: the table of layers to look for.

    Returns:
        What was replaced and what was not; ``print`` it.

    Raises:
        TypeError: ``model`` is not a module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}: {model!r}")
    places = _places(model, peers)
    adopted: list[Adopted] = []
    kept: list[Kept] = []
    done: list[nn.Module] = []
    for place in places:
        # What is inside a layer that has been replaced went with it.
        if any(place.layer is part for layer in done for part in layer.modules()):
            continue
        entry, stand_in = _decide(model, place, peers[layer_name(place.layer)], strict)
        if stand_in is None:
            assert isinstance(entry, Kept)
            kept.append(entry)
            continue
        assert isinstance(entry, Adopted)
        adopted.append(entry)
        done.append(place.layer)
        for parent, name in place.parents:
            children_of(parent)[name] = stand_in
        if place.layer is model:
            model = stand_in
    return AdoptReport(model=model, adopted=tuple(adopted), kept=tuple(kept))


@dataclass(slots=True)
class _Place:
    """A layer, every path to it, and every module that holds it under a name."""

    layer: nn.Module
    paths: list[str] = field(default_factory=list)
    parents: list[tuple[nn.Module, str]] = field(default_factory=list)


def _places(model: nn.Module, peers: Mapping[str, Peer]) -> list[_Place]:
    found: dict[int, _Place] = {}
    for path, layer in model.named_modules(remove_duplicate=False):
        if layer_name(layer) in peers:
            found.setdefault(id(layer), _Place(layer)).paths.append(path)
    for parent in model.modules():
        for name, child in children_of(parent).items():
            if child is not None and id(child) in found:
                found[id(child)].parents.append((parent, name))
    return list(found.values())


def _decide(
    model: nn.Module, place: _Place, peer: Peer, strict: bool
) -> tuple[Adopted | Kept, nn.Module | None]:
    layer, paths = place.layer, tuple(place.paths)

    def keep(reason: str, roundings: float | None = None) -> tuple[Kept, None]:
        return Kept(paths=paths, layer=peer.layer, reason=reason, roundings=roundings), None

    try:
        _refuse_what_cannot_be_copied(layer)
        stand_in = peer.convert(layer).train(layer.training)
        _refuse_broken_ties(model, layer, stand_in)
        verdict = check(peer, layer, stand_in)
    except Unsupported as error:
        return keep(str(error))
    if verdict.reason:
        return keep(verdict.reason, verdict.roundings)
    if verdict.faults and strict:
        return keep(
            f"{'; '.join(verdict.faults)}; ours does not, and is otherwise the same: "
            "strict=False replaces it",
            verdict.roundings,
        )
    notes = [f"the original was wrong: {fault}" for fault in verdict.faults]
    installed = _version(peer.package)
    if installed not in ("", peer.versions):
        notes.append(f"{peer.package} is {installed} here; its code was read at {peer.versions}")
    hooks = sum(_hooks(part) for part in layer.modules() if part not in set(stand_in.modules()))
    if hooks:
        notes.append(f"{hooks} hooks of the original are gone")
        warnings.warn(
            f"{paths[0] or 'the model'}: {hooks} hooks of the layer that was replaced do not "
            "carry over; register them on its stand-in",
            stacklevel=3,
        )
    entry = Adopted(
        paths=paths,
        layer=peer.layer,
        method=peer.method,
        roundings=verdict.roundings,
        difference=verdict.difference,
        notes=tuple(notes),
    )
    return entry, stand_in


def _refuse_what_cannot_be_copied(layer: nn.Module) -> None:
    if any(x.is_meta for x in (*layer.parameters(), *layer.buffers())):
        raise Unsupported("it has no weights (device 'meta'); load them first")
    if "forward" in vars(layer):
        raise Unsupported("its forward was replaced on the instance, so it is not the known layer")
    if any(parametrize.is_parametrized(part) for part in layer.modules()):
        raise Unsupported(
            "its weights are parametrized; remove that first "
            "(torch.nn.utils.parametrize.remove_parametrizations)"
        )


def _refuse_broken_ties(model: nn.Module, layer: nn.Module, stand_in: nn.Module) -> None:
    """A weight that is copied can no longer be the same as one elsewhere in the model."""
    own = {id(part) for part in layer.modules()}
    there = {id(p) for p in stand_in.parameters()}
    copied = {id(p): name for name, p in layer.named_parameters() if id(p) not in there}
    for other in model.modules():
        if id(other) in own:
            continue
        for name, parameter in other.named_parameters(recurse=False):
            if id(parameter) in copied:
                raise Unsupported(
                    f"{copied[id(parameter)]} is also the {name} of a {type(other).__name__}; "
                    "ours needs a copy, which would not stay the same in training"
                )


def _version(package: str) -> str:
    """What is installed; empty where the layer did not come from a package of that name."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _hooks(module: nn.Module) -> int:
    return sum(len(kind) for kind in hooks_of(module))
