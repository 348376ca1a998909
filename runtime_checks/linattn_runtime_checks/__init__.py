"""Judges a folder of exported artifacts: files, numbers, shapes, latency. Needs no torch.

Owns the artifact contract (:mod:`linattn_runtime_checks.contract.manifest`) and imports none of
the other linattn packages, so that a device that only loads artifacts installs nothing else.
"""
