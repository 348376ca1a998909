"""Finds the factory that ``module`` names, and calls it."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from linattn.contract import closest
from linattn_export.live_module.reasons import place_in_own_code
from linattn_runtime_checks.contract.errors import UsageError, foreign

_FORM = "`module` takes package.module:factory"


def load_module(text: str, seed: int) -> nn.Module:
    """Call the factory with no arguments, from ``seed``.

    Args:
        text: ``package.module:factory``; the current folder is searched too. The factory may be a
            function, a class, or a module that exists already.
        seed: of torch's random numbers while the factory runs.

    Raises:
        UsageError: there is no such factory, it raises, or returns no ``torch.nn.Module``.
    """
    factory = _found(text)
    if isinstance(factory, nn.Module):
        module = factory
    else:
        if not callable(factory):
            raise UsageError(
                f"`module={text!r}` is {_kind(factory)}; expected a function or class without "
                "arguments that returns a torch.nn.Module"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = _called(factory, text)
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"`module={text!r}` returned {_kind(module)}, expected a torch.nn.Module; return the "
            "module itself"
        )
    return module


def _found(text: str) -> Any:
    place, separator, name = text.partition(":")
    if not (separator and place and name):
        raise UsageError(f"{_FORM}, such as my_package.nets:make_net, got {text!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(place)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and place.startswith(error.name or "?"):
            raise UsageError(
                f"`module={text!r}`: there is no module {error.name!r}, neither installed nor in "
                "the current folder; run in the folder that holds it, or install it"
            ) from error
        raise UsageError(
            f"`module={text!r}`: importing {place} raised {_said(error)}{place_in_own_code(error)}"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            names = [n for n, value in vars(found).items() if callable(value) and n[0] != "_"]
            near = closest(part, names)
            shown = ", ".join(names[:8]) + (", .." if len(names) > 8 else "")
            hint = f"; did you mean {near!r}?" if near else f"; it has {shown or 'none'}"
            raise UsageError(f"`module={text!r}`: {place} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def _called(factory: Callable[[], Any], text: str) -> Any:
    try:
        return factory()
    except Exception as error:
        raise UsageError(
            f"`module={text!r}` raised {_said(error)}{place_in_own_code(error)}; it is called "
            "without arguments"
        ) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {foreign(str(error))}"


def _kind(thing: object) -> str:
    return f"{type(thing).__name__} {thing!r}"[:120]
