"""What a SPEC promises of a module."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """Unknown keys are errors: most are misspelt."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Promises(Strict):
    """What the module promises beyond its numbers; what is promised here is checked."""

    cost: Literal["linear", "quadratic"] | None = Field(
        default=None, description="growth of time and memory with the sequence length"
    )
    causal: bool = Field(default=False, description="no token sees a later one")
    permutation_equivariant: bool = Field(
        default=False, description="reordering the tokens reorders the outputs, nothing else"
    )
    nan_padding: bool = Field(
        default=False, description="padded tokens change nothing even where they hold NaN"
    )
    finite: bool = Field(
        default=False, description="finite inputs give finite outputs, however hostile they are"
    )
