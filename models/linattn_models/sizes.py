"""Sizes that several models share."""

from linattn_models.contract import ModelError, ModelOptions

D_MODEL = 256
HEADS = 4


def head_sizes(options: ModelOptions) -> tuple[int, int]:
    """Heads and the width of one head.

    Raises:
        ModelError: heads do not divide d_model.
    """
    d_model = D_MODEL if options.d_model is None else options.d_model
    heads = HEADS if options.heads is None else options.heads
    if d_model < 1 or heads < 1:
        raise ModelError(
            f"d_model and heads must be at least 1, got d_model={d_model} and heads={heads}"
        )
    if d_model % heads:
        divisors = ", ".join(str(d) for d in range(1, d_model + 1) if d_model % d == 0)
        raise ModelError(
            f"heads must divide d_model: {d_model} is not a multiple of {heads}; "
            f"heads that do: {divisors}"
        )
    return heads, d_model // heads
