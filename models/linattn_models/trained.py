"""What models with trained weights share: where the weights are, and that their size is fixed."""

from pathlib import Path

from linattn import NAMES
from linattn_models.contract import ModelError, ModelOptions

FOLDER = Path(__file__).parent / "weights"


def trained_methods(model: str) -> tuple[str, ...]:
    """The methods with which ``model`` has trained weights."""
    return tuple(name for name in NAMES if (FOLDER / model / f"{name}.safetensors").is_file())


def weights_of(model: str, method: str) -> Path:
    """The trained weights of ``model`` with ``method``.

    Raises:
        ModelError: none ship for it.
    """
    folder = FOLDER / model
    path = folder / f"{method}.safetensors"
    if not path.is_file():
        known = ", ".join(trained_methods(model))
        raise ModelError(
            f"{model} has no trained weights for method {method!r}; known: {known}; "
            f"train them with models/training/{model}.py"
        )
    return path


def refuse_sizes(model: str, options: ModelOptions, d_model: int, heads: int) -> None:
    """Raise ModelError if the user asks for a size or for options of the method."""
    for name, value in {"d_model": options.d_model, "heads": options.heads}.items():
        if value is not None:
            raise ModelError(
                f"{model} has trained weights of a fixed size (d_model {d_model}, {heads} heads); "
                f"leave out `{name}={value}`"
            )
    if options.method_options:
        raise ModelError(
            f"{model} has trained weights and fixed options; leave out "
            f"{', '.join(f'`options` {options.method}.{name}' for name in options.method_options)}"
        )
