"""``pytest --linattn DIR``: every check of a folder that a build wrote is a test.

Loaded in every pytest run of an environment that has linattn, so nothing else is imported before
an option of ours is used.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from linattn_runtime_checks.pytest_plugin.nodes import Plan

_PLANS = pytest.StashKey[dict[Path, "Plan"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("linattn", "artifacts that linattn-export wrote")
    group.addoption(
        "--linattn",
        action="append",
        default=[],
        metavar="DIR",
        help="Judge the artifacts in DIR too (repeat). Give DIR as an argument as well to run "
        "nothing else. With pytest-xdist, --dist loadscope judges nothing twice.",
    )
    group.addoption(
        "--linattn-runtime",
        action="append",
        default=[],
        metavar="NAME",
        help="Judge on this runtime only (repeat); by default on all that are available.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the manifests and choose the runtimes, so that what cannot be used stops the run.

    Raises:
        pytest.UsageError: a folder or runtime that cannot be used.
    """
    folders, runtimes = config.getoption("linattn"), config.getoption("linattn_runtime")
    if runtimes and not folders:
        raise pytest.UsageError("--linattn-runtime names no folder to judge; add --linattn DIR")
    if not folders:
        return
    from linattn_runtime_checks.pytest_plugin.nodes import plan

    start = config.invocation_params.dir
    config.stash[_PLANS] = plans = {
        (start / name).resolve(): plan(start / name, tuple(runtimes)) for name in folders
    }
    for index, argument in enumerate(config.args):
        # pytest itself takes DIR::... of files only.
        path, separator, names = argument.partition("::")
        folder = (start / path).resolve()
        if separator and folder in plans:
            plans[folder].selections.append(names)
            config.args[index] = path


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the tests of the folders, before -k, -m and the like choose among all.

    Not by arguments of pytest: those below another argument are dropped where ``norecursedirs``
    names them, and a folder called ``build`` would be judged by nobody.

    Raises:
        pytest.UsageError: ``DIR::...`` names no test.
    """
    plans = config.stash.get(_PLANS, {})
    if plans:
        from linattn_runtime_checks.pytest_plugin.nodes import tests

        for path, asked in plans.items():
            items += tests(session, path, asked)
