"""Latency: who is timed, in whose turn, in which process, and what the times say."""
