"""Judging: one artifact on one runtime, a folder, the gate itself, and what a report is held to."""
