"""Ours in place of the attention layers of public packages, with their weights; see ``adopt``."""

from linattn.adoption.contract import Peer, Trial, Unsupported
from linattn.adoption.peers import PEERS
from linattn.adoption.replace import adopt
from linattn.adoption.report import Adopted, AdoptReport, Kept

__all__ = ["PEERS", "Adopted", "AdoptReport", "Kept", "Peer", "Trial", "Unsupported", "adopt"]
