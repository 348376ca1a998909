"""The packages that only this page needs, and how to get them."""

from importlib import import_module

from linattn_runtime_checks.contract.errors import EnvironmentProblem

_PACKAGES = ("jinja2", "matplotlib")


def require_packages() -> None:
    """Say what is missing before any work is done.

    Raises:
        EnvironmentProblem: a package of the extra ``report`` cannot be imported.
    """
    for package in _PACKAGES:
        try:
            import_module(package)
        except ImportError as error:
            raise EnvironmentProblem(
                f"report.html needs {package}, which cannot be imported ({error}); "
                "run: pip install 'linattn[report]'"
            ) from error
