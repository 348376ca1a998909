"""Planted faults: what the self-test damages, to prove that the gate bites."""
