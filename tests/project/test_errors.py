"""Errors form one tree for each root that the dependencies of the packages allow.

``linattn_runtime_checks`` runs without torch, which ``linattn`` imports, and neither may import the
other: so there are two roots, and every error that a user meets is below one of them.
"""

import importlib
import pkgutil

import pytest

import linattn
from linattn_runtime_checks.contract import errors

CHECKS_OWN = errors.LinattnError
BELOW = {
    "linattn": (linattn.LinattnError, {"LinattnError", "MethodError", "Unsupported"}),
    "linattn_models": (linattn.LinattnError, {"ModelError"}),
    "linattn_export": (CHECKS_OWN, {"OutsideDomain"}),
    "linattn_runtime_checks.contract": (
        CHECKS_OWN,
        {"LinattnError", "UsageError", "ExportError", "EnvironmentProblem"},
    ),
}


def defined(package: str) -> set[type[Exception]]:
    """The exceptions that a package defines, wherever in it."""
    found = set()
    path = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(path, f"{package}."):
        if not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, Exception):
                    found.add(value)
    return {error for error in found if f"{error.__module__}.".startswith(f"{package}.")}


@pytest.mark.parametrize("package", BELOW)
def test_every_error_of_a_package_is_below_the_root(package: str) -> None:
    root, names = BELOW[package]
    found = defined(package)
    assert {error.__name__ for error in found} == names
    assert all(issubclass(error, root) for error in found)


def test_what_was_a_value_error_still_is() -> None:
    with pytest.raises(linattn.LinattnError, match="unknown method") as caught:
        linattn.method("no-such-method")
    assert isinstance(caught.value, ValueError)
