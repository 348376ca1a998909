"""The table of layers that ours can stand in for: one file for each package."""

from linattn.adoption import (
    fla,
    linear_attention_transformer,
    linformer,
    nystrom,
    performer,
    taylor_series,
    timm,
    transformers,
)
from linattn.adoption.contract import Peer

PEERS: dict[str, Peer] = {
    peer.layer: peer
    for peers in (
        linformer.PEERS,
        linear_attention_transformer.PEERS,
        performer.PEERS,
        nystrom.PEERS,
        taylor_series.PEERS,
        timm.PEERS,
        transformers.PEERS,
        fla.PEERS,
    )
    for peer in peers
}
