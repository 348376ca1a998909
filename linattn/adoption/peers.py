"""The table of layers that ours can stand in for: one file for each package."""

from linattn.adoption import linear_attention_transformer, linformer, timm
from linattn.adoption.contract import Peer

PEERS: dict[str, Peer] = {
    peer.layer: peer
    for peers in (linformer.PEERS, linear_attention_transformer.PEERS, timm.PEERS)
    for peer in peers
}
