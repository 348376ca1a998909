"""A build leaves its process as it was, however it ends."""

import contextlib
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch


@contextmanager
def restored() -> Iterator[None]:
    """At the end of the block everything global is as it was at its start.

    Threads, random numbers, gradient mode, default dtype and device, warnings, log levels, paths of
    imports, the environment. A module's own state is given back by whoever borrowed it.
    """
    with contextlib.ExitStack() as stack:
        for keep in _KEPT:
            stack.callback(keep())
        stack.enter_context(warnings.catch_warnings())
        yield


def _threads() -> Callable[[], object]:
    return partial(_set_threads, torch.get_num_threads())


def _set_threads(number: int) -> None:
    if torch.get_num_threads() != number:
        torch.set_num_threads(number)


def _torch_numbers() -> Callable[[], object]:
    return partial(torch.set_rng_state, torch.get_rng_state())


def _cuda_numbers() -> Callable[[], object]:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return lambda: None
    return partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())


def _numpy_numbers() -> Callable[[], object]:
    return partial(np.random.set_state, np.random.get_state())


def _numpy_errors() -> Callable[[], object]:
    return partial(_set_numpy_errors, np.geterr())


def _set_numpy_errors(kept: Any) -> None:
    np.seterr(**kept)


def _python_numbers() -> Callable[[], object]:
    return partial(random.setstate, random.getstate())


def _gradients() -> Callable[[], object]:
    return partial(torch.set_grad_enabled, torch.is_grad_enabled())


def _dtype() -> Callable[[], object]:
    return partial(torch.set_default_dtype, torch.get_default_dtype())


def _logging() -> Callable[[], object]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    kept = [
        (logger, logger.level, logger.propagate, logger.disabled, [*logger.filters])
        for logger in loggers
        if isinstance(logger, logging.Logger)
    ]

    def restore() -> None:
        for logger, level, propagate, disabled, filters in kept:
            logger.setLevel(level)
            logger.propagate, logger.disabled = propagate, disabled
            logger.filters[:] = filters

    return restore


def _paths() -> Callable[[], object]:
    return partial(sys.path.__setitem__, slice(None), [*sys.path])


def _environment() -> Callable[[], object]:
    kept = dict(os.environ)

    def restore() -> None:
        for name in os.environ.keys() - kept.keys():
            del os.environ[name]
        for name, value in kept.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    return restore


_KEPT = (
    _threads,
    _torch_numbers,
    _cuda_numbers,
    _numpy_numbers,
    _numpy_errors,
    _python_numbers,
    _gradients,
    _dtype,
    _logging,
    _paths,
    _environment,
)
"""Each notes one thing and returns what restores it."""
