"""The table of recurrent layers with gates of their own: one file and one line each."""

from linattn.contract import LayerMethod
from linattn.layers import delta, gated_delta, gla, kda, lightning, mamba2

LAYERS: dict[str, LayerMethod] = {
    record.name: record
    for record in (
        lightning.METHOD,
        gla.METHOD,
        mamba2.METHOD,
        delta.METHOD,
        gated_delta.METHOD,
        kda.METHOD,
    )
}
